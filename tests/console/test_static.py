"""The files of the pages: nothing from elsewhere, nothing inline, nothing that parses text as HTML."""

from __future__ import annotations

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
        import {{ prettyJson, hexDump, TOO_LARGE, size, seconds }} from "{FOLDER}/format.js";
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
        assert.equal(size(1536), "1.5 KiB");
        assert.equal(size(0), "0 B");
        assert.equal(seconds(0.00025), "250 µs");
    """
    subprocess.run(["node", "--input-type=module", "-e", script], check=True, timeout=60)
