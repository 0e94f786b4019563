"""The files of the pages: nothing from elsewhere, nothing inline, nothing that parses text as HTML."""

from __future__ import annotations

import json
import os
import re
import subprocess
from shutil import which
from typing import Final

import pytest

from tests.sources import ROOT

FOLDER: Final = ROOT / "penstock" / "console" / "static"
FILES: Final = sorted(FOLDER.iterdir())
SCRIPTS: Final = [file for file in FILES if file.suffix == ".js"]
FORBIDDEN: Final = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|\beval\(|new Function|setAttribute\(\"style"
)
SIZE_MAX: Final = 160 << 10


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_nothing_comes_from_elsewhere(file: object) -> None:
    """The console works in a network without the internet, and tells no other server who uses it."""
    text = FOLDER.joinpath(str(file)).read_text()
    addresses = re.findall(r"(?:https?:)?//[\w.-]+\.\w+", re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
    assert set(addresses) <= {"http://www.w3.org"}  # the names of XML are no addresses


@pytest.mark.parametrize("file", SCRIPTS, ids=lambda file: file.name)
def test_no_text_is_parsed_as_html(file: object) -> None:
    """What an event has in it only ever becomes text."""
    assert not FORBIDDEN.findall(FOLDER.joinpath(str(file)).read_text())


def test_the_page_has_no_inline_script_or_style() -> None:
    """The policy of the pages forbids them; a browser would refuse what is there."""
    html = (FOLDER / "index.html").read_text()
    assert not re.search(r"<style|\sstyle=|\son\w+=", html)
    assert re.findall(r"<script([^>]*)>(.*?)</script>", html) == [(' type="module" src="/console/static/main.js"', "")]


def test_the_files_are_small() -> None:
    """They are in memory, and a page is there at once over a slow line, too."""
    assert sum(file.stat().st_size for file in FILES) < SIZE_MAX


@pytest.mark.skipif(which("node") is None, reason="there is no Node")
def test_events_are_indented_and_times_understood() -> None:
    """JSON is only cut apart: a number that JavaScript cannot hold is shown as it was written.

    What would grow to gigabytes of indentation is not indented: the page of who opens such an event froze.
    """
    script = f"""
        import {{ prettyJson, hexDump, TOO_LARGE }} from "{FOLDER}/format.js";
        import assert from "node:assert/strict";
        assert.equal(prettyJson('{{"a":9007199254740993,"b":[],"c":[1,{{"d":"x:,"}}]}}'), [
          "{{", '  "a": 9007199254740993,', '  "b": [],', '  "c": [', "    1,", "    {{", '      "d": "x:,"', "    }}",
          "  ]", "}}"].join("\\n"));
        assert.equal(prettyJson('{{"a": 1, "a": 2}}'), '{{\\n  "a": 1,\\n  "a": 2\\n}}');
        assert.equal(prettyJson("17"), null);
        assert.equal(prettyJson("{{broken"), null);
        const nested = (depth, inner) => "[".repeat(depth) + inner + "]".repeat(depth);
        assert.ok(prettyJson(nested(100, "1")).includes("\\n" + " ".repeat(200) + "1"));
        assert.equal(prettyJson(nested(101, "1")), TOO_LARGE);
        assert.equal(prettyJson(nested(32_000, "")), TOO_LARGE);
        assert.equal(prettyJson(nested(90, "1,".repeat(30_000) + "1")), TOO_LARGE);
        assert.equal(typeof prettyJson(nested(1, "1,".repeat(30_000) + "1")), "string");
        assert.equal(hexDump("414200ff"), "000000  41 42 00 ff" + " ".repeat(36) + "  AB··");
    """
    run(script)


def run(script: str) -> str:
    """Run a script in Node, with the time zone of the tests; return what it prints."""
    command = ["node", "--input-type=module", "-e", script]
    return subprocess.run(
        command, check=True, timeout=60, stdout=subprocess.PIPE, text=True, env={**os.environ, "TZ": "UTC"}
    ).stdout


FIGURES: Final = [
    ("size(0)", "0 B"),
    ("size(0.4)", "0 B"),
    ("size(100)", "100 B"),
    ("size(1000)", "1000 B"),
    ("size(1023)", "1023 B"),
    ("size(1023.7)", "1 KiB"),
    ("size(1536)", "1.5 KiB"),
    ("size(10 * 1024)", "10 KiB"),
    ("size(100 * 1024)", "100 KiB"),
    ("size(123.4 * 1024)", "123 KiB"),
    ("size(999.7 * 1024)", "1000 KiB"),
    ("size(1010 * 1024)", "1010 KiB"),
    ("size(1023.4 * 1024)", "1023 KiB"),
    ("size(1023.6 * 1024)", "1 MiB"),
    ("size(200 * 2 ** 30)", "200 GiB"),
    ("size(1000 * 2 ** 30)", "1000 GiB"),
    ("size(20.25 * 2 ** 40)", "20.3 TiB"),
    ("size(5000 * 2 ** 50)", "5000 PiB"),
    ("count(1000)", "1,000"),
    ("count(1234567.6)", "1,234,568"),
    ("count(100)", "100"),
    ("rate(null)", "\N{EN DASH}"),
    ("rate(0)", "0"),
    ("rate(0.01)", "< 0.1"),
    ("rate(0.25)", "0.3"),
    ("rate(2)", "2"),
    ("rate(9.96)", "10"),
    ("rate(100)", "100"),
    ("rate(20000)", "20,000"),
    ("seconds(undefined)", "\N{EN DASH}"),
    ("seconds(0)", "0 s"),
    ("seconds(-1)", "0 s"),
    ("seconds(0.0000001)", "< 1 µs"),
    ("seconds(0.00025)", "250 µs"),
    ("seconds(0.0009996)", "1 ms"),
    ("seconds(0.1)", "100 ms"),
    ("seconds(0.9996)", "1 s"),
    ("seconds(1.25)", "1.3 s"),
    ("seconds(9.96)", "10 s"),
    ("seconds(60)", "60 s"),
    ("seconds(100)", "2 min"),
    ("seconds(6000)", "2 h"),
    ("seconds(864000)", "10 d"),
    ("plural(1, 'event')", "1 event"),
    ("plural(1000, 'event')", "1,000 events"),
]


@pytest.mark.skipif(which("node") is None, reason="there is no Node")
def test_figures_are_not_wrong_by_powers_of_ten() -> None:
    """An operator decides by them: 100 KiB was shown as 1 KiB, and 1010 KiB as 1.01e+3 KiB."""
    calls = ", ".join(call for call, _ in FIGURES)
    script = f"""
        import {{ count, plural, rate, seconds, size }} from "{FOLDER}/format.js";
        console.log(JSON.stringify([{calls}]));
    """
    assert dict(zip(FIGURES, json.loads(run(script)), strict=True)) == {figure: figure[1] for figure in FIGURES}


@pytest.mark.skipif(which("node") is None, reason="there is no Node")
def test_a_time_of_another_day_has_its_date() -> None:
    """A clock time alone is taken for one of today."""
    script = f"""
        import {{ isTime, timeBeside }} from "{FOLDER}/format.js";
        import assert from "node:assert/strict";
        const first = Date.UTC(2026, 10, 1, 9);
        assert.equal(timeBeside(first + 60_000, first), "09:01:00");
        assert.equal(timeBeside(first + 86_400_000, first), "2026-11-02 09:00:00");
        assert.equal(timeBeside(Date.UTC(2026, 11, 1, 9), first), "2026-12-01 09:00:00");
        assert.equal(timeBeside(first - 86_400_000, first, {{ withMs: true }}), "2026-10-31 09:00:00.000");
        assert.equal(timeBeside(null, first), "\N{EN DASH}");
        assert.ok(isTime(first) && !isTime(5000));
    """
    run(script)
