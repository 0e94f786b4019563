"""What the documents show, works.

Each document is a story: its blocks run one after another in one folder that was empty at first. Every block is
a process of its own, so that each can be copied alone; only a plain ``penstock`` command runs in this process. Starting
Python would take most of the time, so the processes are forks of one that has imported everything; ``make explore``
starts them as a user does.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

from penstock.cli import main
from tests.sampling import EXPLORES

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parent.parent
DOCUMENTS: Final = [ROOT / "README.md", ROOT / "examples" / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
FENCE: Final = re.compile(r"^```(?P<language>\S*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
NOT_RUN: Final = ("text", "mermaid")
"""Languages that are only looked at; any other is run, or is a mistake."""
CURL: Final = () if which("curl") else ("curl ",)
EXEMPT: Final = ("make ", "pip ", "git clone ", "cd penstock", "python3 -m venv ", *CURL)
"""Commands that set up what these tests already run in, or that this machine may lack."""

PLAIN: Final = re.compile(r"penstock (?!serve|demo|aggregate|archive|windows)[^|<>&;$*`\\]*")
"""Commands that need no shell, and start no Java, which would stay in this process."""

COMMANDS: Final = re.compile(r"[$#] |>>> |import |from [\w.]+ import |(?:\w+ = )?[A-Za-z_][\w.]*\(|\w+ = ")
"""How a block begins that a reader copies: a prompt, an import, a call, or a value that gets a name."""
NOT_HERE: Final = "servers that are not here"
LOOKED_AT: Final = {
    ("README.md", "$ make demo"): "tests/cli/test_cli_demo.py runs the demo",
    ("examples/README.md", "$ pip install '.[pipelines,spark]'"): "tests/test_examples.py runs the pipeline",
    ("docs/cluster.md", "from penstock.cpo import open_cpo"): NOT_HERE,
    ("docs/cluster.md", "$ penstock serve ./state --plogs s3://bucket/plant"): NOT_HERE,
    ("docs/cluster.md", "$ penstock cluster status --store penstock://a.example:7367"): NOT_HERE,
    ("docs/cluster.md", "$ penstock cluster create plant east=a:7369"): NOT_HERE,
    ("docs/cluster.md", "$ penstock cluster add-group plant north=g:7369"): NOT_HERE,
    ("docs/cluster.md", "$ penstock cluster create plant a=m1:7369"): "tests/plog/server/test_layouts.py tries it",
    ("docs/cluster.md", 'store = penstock.connect("penstock://a.example:7367,b.example:7367", user='): NOT_HERE,
    ("docs/cluster.md", 'store = penstock.connect("penstock://a.example:7367,b.example:7367", plogs='): NOT_HERE,
    ("docs/interop.md", "# useradd"): "only root may; tests/test_deploy.py compares the commands with the unit",
    (
        "docs/plogs.md",
        'open_plogs("s3://',
    ): "tests/plog/objects/test_open.py opens such addresses, of buckets that are here",
    (
        "docs/spark.md",
        "df.write.format",
    ): "the script of the page has most of it, tests/spark/test_sink.py all",
    ("docs/spark.md", "counts.writeStream.outputMode"): "tests/spark/test_sink.py runs to_stream in such a query",
    ("docs/spark.md", "rows = ("): "a bucket that is not here; tests/spark/test_cluster.py reads one",
    ("docs/spark.md", ">>> spark.read"): "tests/spark/test_reference.py runs it and compares the error",
    ("docs/interop.md", "$ podman build"): "there is no container engine; tests/test_deploy.py checks the commands",
    ("docs/server.md", "$ pip install '.[server]'"): "it runs until Ctrl-C; the next blocks start it in the background",
    ("docs/server.md", "$ chgrp readers"): "a group of users that is not here",
    ("docs/server.md", "# penstock.toml"): "tests/server/test_config.py reads it as settings",
}
"""Blocks of commands that are text all the same: how each begins, and why it is not run."""
PORTS: Final = ("7367", "7368", "7377", "7378")
"""The ports that the documents name; here they are free ones."""


class Block(NamedTuple):
    line: int
    language: str
    body: str


def blocks_of(text: str) -> list[Block]:
    return [
        Block(text.count("\n", 0, match.start()) + 1, match["language"], match["body"])
        for match in FENCE.finditer(text)
    ]


def with_one_spark(blocks: list[Block]) -> list[Block]:
    """Put scripts that use Spark into one, which runs each by itself in a process that all share: it starts slowly."""
    scripts = [block for block in blocks if block.language == "python" and "SparkSession" in block.body]
    if EXPLORES or len(scripts) < 2:
        return blocks
    shared = "\n".join(f"exec({script.body!r}, {{'__name__': '__main__'}})" for script in scripts)
    others = [block for block in blocks if block not in scripts[1:]]
    return [block._replace(body=shared) if block is scripts[0] else block for block in others]


def commands_of(body: str) -> list[str]:
    """Return what follows each ``$ ``, with lines that end in a backslash joined to the next."""
    return re.findall(r"^\$ ((?:.*\\\n)*.*)$", body, re.MULTILINE)


def to_run(block: Block) -> list[list[str]]:
    """Return the command lines of a block; an empty list only if it is not meant to be run."""
    if block.language in NOT_RUN:
        return []
    if block.language == "python":
        return [[sys.executable, "-c", block.body]]
    assert block.language == "console", (
        f"line {block.line}: a {block.language!r} block is never run; say console or text"
    )
    commands = commands_of(block.body)
    assert commands, f"line {block.line}: a console block without a line that starts with '$ '"
    return [
        shlex.split(command) if PLAIN.fullmatch(command) else ["bash", "-c", command]
        for command in commands
        if not command.startswith(EXEMPT)
    ]


def free_ports(count: int) -> list[int]:
    """Return ports that are free at the moment."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [one.getsockname()[1] for one in sockets]


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An empty folder; a process that was started in it, and whose number was left in a file, ends with the test.

    It stays until all tests have ended: Java may have been started in it, for other tests, too.
    """
    tmp_path = tmp_path_factory.mktemp("page")
    yield tmp_path
    for file in tmp_path.glob("*.pid"):
        with suppress(ProcessLookupError):
            os.kill(int(file.read_text()), signal.SIGTERM)


@pytest.mark.long
@pytest.mark.usefixtures("python_of_spark")
@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_block_runs(document: Path, folder: Path, quick_python: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A newcomer copies these lines; the first one that fails is where most of them leave.

    The ports of a server are free ones, whatever else this machine does.
    """
    ports = dict(zip(PORTS, map(str, free_ports(len(PORTS))), strict=True))
    if not EXPLORES:
        monkeypatch.setattr(sys, "executable", str(quick_python))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.setenv("PENSTOCK_PORT", ports["7367"])
    monkeypatch.setenv("PENSTOCK_HTTP_PORT", ports["7368"])
    monkeypatch.chdir(folder)
    text = re.sub(
        r"(127\.0\.0\.1:|port )(73[67][78])\b", lambda named: named[1] + ports[named[2]], document.read_text()
    )
    for block in with_one_spark(blocks_of(text)):
        for arguments in to_run(block):
            where = f"{document.name}:{block.line}: {arguments}"
            if arguments[0] == "penstock":
                monkeypatch.setattr(sys, "argv", arguments)
                with pytest.raises(SystemExit) as ended:
                    main()
                assert ended.value.code in (None, 0), where
            else:
                result = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=300)
                assert result.returncode == 0, f"{where}\n{result.stdout}{result.stderr}"


def first_script(document: str) -> Block:
    return next(block for block in blocks_of((ROOT / document).read_text()) if block.language == "python")


def test_script_of_the_readme_runs_again(folder: Path) -> None:
    """Everybody runs the first script a second time, with a change of their own in it."""
    script = first_script("README.md")
    for _ in range(2):
        result = subprocess.run(to_run(script)[0], cwd=folder, capture_output=True, text=True, check=False, timeout=60)
        assert (result.returncode, result.stdout.startswith("b'reading ")) == (0, True), result.stderr


@pytest.mark.long
def test_first_scripts_run_in_the_folder_of_the_readme(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A newcomer goes from page to page without a new folder for each, and runs a script twice.

    Nothing tells Spark which Python to use.
    """
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    for name in (
        "README.md",
        "docs/streams.md",
        "docs/streams.md",
        "docs/server.md",
        "docs/server.md",
        *(["docs/spark.md"] if EXPLORES else []),
    ):
        script = to_run(first_script(name))[0]
        result = subprocess.run(script, cwd=folder, capture_output=True, text=True, check=False, timeout=300)
        assert result.returncode == 0, f"{name}\n{result.stderr}"


def test_blocks_and_commands_are_found() -> None:
    """If this test overlooked a block, the others would pass for the wrong reason."""
    commands = "$ one \\\n  two\nanswer\n$ make test\n$ penstock stream ls 'a b'\n"
    text = f"a\n```console\n{commands}```\nb\n```python\nx = 1\n```\n```text\nlook\n```\n"
    blocks = blocks_of(text)
    assert [(block.line, block.language) for block in blocks] == [(2, "console"), (10, "python"), (13, "text")]
    assert to_run(blocks[0]) == [["bash", "-c", "one \\\n  two"], ["penstock", "stream", "ls", "a b"]]
    assert to_run(blocks[1]) == [[sys.executable, "-c", "x = 1\n"]]
    assert to_run(blocks[2]) == []


@pytest.mark.parametrize("block", [Block(1, "bash", "ls"), Block(1, "", "ls"), Block(1, "console", "ls")])
def test_block_that_would_never_run_is_a_mistake(block: Block) -> None:
    """Nothing is skipped in silence."""
    with pytest.raises(AssertionError, match="line 1"):
        to_run(block)


def text_that_could_run(document: Path) -> list[str]:
    """Return the first lines of the text blocks of a document that begin like commands or like Python."""
    texts = [block.body for block in blocks_of(document.read_text()) if block.language == "text"]
    return [body.splitlines()[0] for body in texts if COMMANDS.match(body)]


def test_text_that_could_run_does_or_has_a_reason() -> None:
    """A block that is called text is never run, and so a command in it is wrong sooner or later."""
    found = [
        (str(document.relative_to(ROOT)), line) for document in DOCUMENTS for line in text_that_could_run(document)
    ]
    named = {
        (document, line): [key for key in LOOKED_AT if key[0] == document and line.startswith(key[1])]
        for document, line in found
    }
    assert [place for place, keys in named.items() if not keys] == []
    assert set(LOOKED_AT) - {key for keys in named.values() for key in keys} == set(), (
        "reasons for blocks that are gone"
    )
    tests = {test for reason in LOOKED_AT.values() for test in re.findall(r"tests/[\w/]+\.py", reason)}
    assert [test for test in tests if not (ROOT / test).is_file()] == [], "reasons with tests that are gone"


@pytest.mark.parametrize(
    "body",
    [
        "$ ls\n",
        "# systemctl daemon-reload\n",
        ">>> penstock.connect()\n",
        "import penstock\n",
        "from penstock.cpo import open_cpo\n",
        "open_plogs('s3://bucket')\n",
        'df.write.format("penstock").save()\n',
        "store = penstock.connect('memory:')\n",
        "rows = (\n",
    ],
)
def test_commands_that_are_called_text_are_found(tmp_path: Path, body: str) -> None:
    """The rule is as good as what it finds."""
    (tmp_path / "page.md").write_text(f"```text\n{body}```\n\n```text\na table\n```\n")
    assert text_that_could_run(tmp_path / "page.md") == [body.strip()]


def test_every_fence_is_seen() -> None:
    """A fence that is indented or never closed would be skipped."""
    for document in DOCUMENTS:
        text = document.read_text()
        assert 2 * len(blocks_of(text)) == len(re.findall(r"^\s*```", text, re.MULTILINE)), document.name
