"""The commands for repositories."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING

import penstock
from penstock.repo import Bundle, Repository, key_name
from penstock.repo import _copy as copies
from penstock.repo import _git_import as git_import
from tests.cli.project import make_project
from tests.repo.git_history import History, git, plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pytest

    from tests.cli.conftest import Call, CallOnTerminal

import_command, copies_command = (import_module(f"penstock.cli.repo.{name}") for name in ("import_", "_copies"))


def test_from_git_and_back_on_the_command_line(call: Call, here: Path) -> None:
    """A newcomer moves a project in, looks at it, and gets out the same commits."""
    history = make_project(here, is_imported=False)
    assert call("repo", "import", "project", "code/x").out == "code/x: 2 new revisions, 3 names\n"
    history.name(b"refs/heads/main", history.commit([2], {b"caf\xe9": plain(b"x")}, message=b"Third\n"))
    history.write(here / "project")
    again = json.loads(call("repo", "import", "project", "code/x", "--json").out)
    assert (again["revisions"], sorted(again["refs"])) == (1, ["HEAD", "refs/heads/main", "refs/tags/v1"])
    first, second, third = (line.split("\t") for line in reversed(call("repo", "log", "code/x").lines))
    assert first == [again["refs"]["refs/tags/v1"], "1700000060", "Jörg <j@example.org>", "Begin"]
    logged = json.loads(call("repo", "log", "code/x", "main", "--limit", "1", "--json").out)
    assert (logged["revision"], logged["parents"], logged["message"]) == (third[0], [second[0]], "Third\n")
    assert call("repo", "cat", "code/x", "README.md@v1").out == "# Project\n"
    assert call("repo", "cat", "code/x", "README.md").raw == call("repo", "cat", "code/x", f"README.md@{third[0]}").raw
    assert [line.split("\t")[0] for line in call("repo", "annotate", "code/x", "README.md").lines] == [
        first[0],
        second[0],
    ]
    lines = [json.loads(line) for line in call("repo", "annotate", "code/x", "README.md@main", "--json").lines]
    assert lines[1] == {
        "revision": second[0],
        "author": "Jörg <j@example.org>",
        "time": 1_700_000_120,
        "line": "More.\n",
    }
    assert call("repo", "check", "code/x").lines == ["code/x: 9 items, 2 lists of names, all good"]
    git(here, "init", "-q", "--bare", "back")
    git(here / "back", "fast-import", "--quiet", stdin=call("repo", "export", "code/x").raw)
    assert git(here / "back", "for-each-ref") == git(here / "project", "for-each-ref")
    git(here, "clone", "-q", "--bare", "--depth=1", f"file://{here / 'project'}", "shallow")
    call("repo", "import", "shallow", "code/shallow")
    missing = (
        f"penstock: 1 parent not in the repository, such as {second[0]}: import the stream where git has those commits"
    )
    assert call("repo", "export", "code/shallow").err.splitlines() == [missing]


def test_bundle_is_read_like_a_repository(call: Call, here: Path) -> None:
    """It is a frozen repository: in one file, with branches and tags, also if it has changes only."""
    history = make_project(here, is_imported=True)
    assert call("repo", "bundle", "create", "code/project", "all.bundle").code == 0
    opened = json.loads(call("repo", "bundle", "open", "all.bundle", "--json").out)
    assert (opened["revisions"], len(opened["refs"]), opened["missing"]) == (2, 3, [])
    assert call("repo", "cat", "all.bundle", "README.md@main").out == "# Project\nMore.\n"
    assert len(call("repo", "log", "all.bundle").lines) == 2
    assert call("repo", "bundle", "check", "all.bundle").lines[-1].endswith("all good")
    made = json.loads(call("repo", "bundle", "create", "code/project", "new.bundle", "--known", "v1", "--json").out)
    assert made["items"] == 3, "as many as a push counts"
    changes = json.loads(call("repo", "bundle", "open", "new.bundle", "--json").out)
    assert (changes["revisions"], sorted(changes["refs"])) == (1, ["HEAD", "refs/heads/main"])
    assert (
        call("repo", "pull", "code/copy", "all.bundle").out == "code/copy: 2 new revisions, 6 items, 3 changed names\n"
    )
    history.name(b"refs/heads/main", history.commit([2], {b"new": plain(b"x")}))
    history.write(here / "project")
    call("repo", "import", "project", "code/project")
    call("repo", "bundle", "create", "code/project", "next.bundle", "--known", opened["refs"]["refs/heads/main"])
    pulled = call("repo", "pull", "code/copy", "next.bundle").out
    assert pulled == "code/copy: 1 new revision, 3 items, 2 changed names\n"
    assert len(call("repo", "log", "code/copy", "main").lines) == 3
    here.joinpath("bad.bundle").write_bytes(_damaged(here / "all.bundle"))
    result = call("repo", "bundle", "check", "bad.bundle")
    assert result.code == 1
    assert "bad.bundle" in result.err + result.out


def test_push_and_pull_bring_only_what_is_new(call: Call, here: Path) -> None:
    """Copies are kept in step with little traffic, and a branch that has diverged is not lost unnoticed."""
    history = make_project(here, is_imported=True)
    assert (
        call("repo", "push", "code/project", "backup").out
        == "code/project: 0 new revisions, 0 items, 0 changed names\n"
    )
    history.name(b"refs/heads/main", history.commit([2], {b"new": plain(b"x")}))
    history.write(here / "project")
    call("repo", "import", "project", "code/project")
    pushed = json.loads(call("repo", "push", "code/project", "backup", "--json").out)
    assert (pushed["revisions"], pushed["items"], pushed["names"]) == (1, 3, ["HEAD", "refs/heads/main"])
    new = call("repo", "pull", "code/mirror", "./backup", "--as", "code/project", "--store", "third")
    assert new.out.startswith("code/mirror: 3 new revisions")
    history.name(b"refs/heads/main", history.commit([2], {b"other": plain(b"y")}))
    history.write(here / "project")
    call("repo", "import", "project", "code/project")
    refused = call("repo", "push", "code/project", "backup")
    assert (refused.code, len(refused.err.splitlines())) == (1, 1)
    assert "other revisions than the source in HEAD, refs/heads/main: merge them, or use --force" in refused.err
    assert call("repo", "push", "code/project", "backup", "--force").code == 0
    assert len(call("repo", "log", "code/project", "--store", "backup").lines) == 3


def test_interrupted_copy_goes_on_where_it_was(call: Call, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in the middle of an import, a push or a pull ends it at once, with what was copied by then."""
    history = make_project(here, is_imported=False)
    for number in range(2, 8):
        history.commit([number], {b"new": plain(b"%d\n" % number)})
    history.name(b"refs/heads/main", history.count)
    history.write(here / "project")
    monkeypatch.setattr(git_import, "_BATCH_REVISIONS", 2)
    monkeypatch.setattr(copies, "_BATCH_REVISIONS", 2)

    @contextmanager
    def interrupting(_: str) -> Iterator[Callable[[int, int], None]]:
        yield lambda done, total: os.kill(os.getpid(), signal.SIGINT) if (done, total) == (4, 8) else None

    for command in ("import project code/x", "push code/x other", "pull code/y other --as code/x --store third"):
        with monkeypatch.context() as patched:
            for module in (import_command, copies_command):
                patched.setattr(module, "revision_progress", interrupting)
            interrupted = call("repo", *command.split())
        assert (interrupted.code, interrupted.out) == (130, ""), interrupted
        assert " 4 new revisions, " in call("repo", *command.split()).out
    assert len(call("repo", "log", "code/y", "--store", "third").lines) == 8
    assert call("repo", "check", "code/y", "--store", "third").lines[-1].endswith("all good")


def test_what_is_wrong_is_one_line(call: Call, here: Path) -> None:
    """A name that does not exist is named, with what to use instead; 2 is a mistake in the call, 1 one in the data."""
    make_project(here, is_imported=True)
    with penstock.connect(here / "penstock-data") as store:
        store.create_stream("plant/readings")
    here.joinpath("no.bundle").write_bytes(b"hello")
    for arguments, code, message in (
        ("import nowhere code/x", 2, "no git repository in 'nowhere': name its folder"),
        ("import project plant/readings", 1, "stream plant/readings is not a repository: name the stream of one"),
        ("log code/gone", 1, "no bundle and no stream 'code/gone'"),
        ("log gone.bundle", 1, "no bundle and no stream 'gone.bundle': check the name"),
        ("pull code/project gone.bundle", 1, "no bundle and no store 'gone.bundle': check the name"),
        (
            "cat code/project README.md@v9",
            2,
            "no revision 'v9': use an id or at least 4 digits of it, a branch or a tag",
        ),
        ("cat code/project gone@v1", 1, "no file 'gone' in revision "),
        ("bundle open no.bundle", 1, "no.bundle is not a bundle: name a file that penstock repo bundle create has"),
        ("bundle check gone.bundle", 1, "cannot read the bundle gone.bundle"),
        ("push code/project penstock://localhost:1", 1, "localhost:1"),
        ("push code/project backup --user anna", 2, "--user applies only to a server"),
    ):
        result = call("repo", *arguments.split())
        assert (result.code, len(result.err.splitlines())) == (code, 1), (arguments, result)
        assert message in result.err, arguments


def test_wrong_source_leaves_nothing_behind(call: Call, here: Path) -> None:
    """A misspelled source made an empty repository, from which a pull then succeeded."""
    make_project(here, is_imported=True)
    for arguments in ("import nowhere code/gone", "push code/gone backup", "import nowhere code/x --store new"):
        assert call("repo", *arguments.split()).code, arguments
    for store in ("penstock-data", "backup"):
        assert "code/gone" not in call("stream", "ls", "--store", store).out
    assert not here.joinpath("new").exists()


def make_changes(call: Call, here: Path) -> str:
    """Make a bundle of changes, with a delta on the inventory of the revision that is returned."""
    history = make_project(here, is_imported=True)
    history.name(b"refs/tags/many", history.commit([2], {b"file-%d" % number: plain(b"") for number in range(8)}))
    history.name(b"refs/heads/main", history.commit([3], {b"file-1": plain(b"x")}))
    history.write(here / "project")
    refs = json.loads(call("repo", "import", "project", "code/project", "--json").out)["refs"]
    made = call("repo", "bundle", "create", "code/project", "new.bundle", "--known", "many")
    assert made.out == "new.bundle: 3 items, builds on 1 other item\n"
    return str(refs["refs/tags/many"])


def test_bundle_of_changes_is_good_without_what_it_builds_on(call: Call, here: Path) -> None:
    """Its receiver has the rest; what is neither in the bundle nor named as known is missing."""
    known = make_changes(call, here)
    checked = call("repo", "bundle", "check", "new.bundle")
    summary = "new.bundle: 3 items, 1 list of names, all good; 1 delta on 1 item elsewhere not reconstructed"
    assert (checked.code, checked.lines) == (0, [f"builds on inventories@{known}", summary])
    found = json.loads(call("repo", "check", "new.bundle", "--json").out)
    good = {"items": 3, "name_lists": 1, "missing": [], "errors": [], "foreign_events": 0}
    assert found == good | {"elsewhere": [f"inventories@{known}"], "unresolved": 1}
    with Bundle.open(here / "new.bundle") as bundle, penstock.connect(here / "penstock-data") as store:
        stacked = bundle.stacked_on(Repository.open(store, "code/project")).check()
        assert (stacked.is_good, stacked.elsewhere, stacked.unresolved) == (True, (), 0)
        bundle.missing = ()
        assert [key_name(key) for key in bundle.check().missing] == [f"inventories@{known}"]


def test_failed_copy_leaves_no_empty_repository(call: Call, here: Path) -> None:
    """A bundle of changes needs what it builds on; an empty stream beside the error looks as if it had been pulled."""
    make_changes(call, here)
    here.joinpath("bad.bundle").write_bytes(_damaged(here / "project.bundle"))
    shutil.rmtree(here / "project" / "objects")
    here.joinpath("project", "objects").mkdir()
    for arguments in ("pull code/x new.bundle", "pull code/x bad.bundle", "import project code/x"):
        assert call("repo", *arguments.split()).code == 1, arguments
    assert [line.split("\t")[0] for line in call("stream", "ls").lines] == ["code/project"]


def _damaged(path: Path) -> bytes:
    data = bytearray(path.read_bytes())
    data[60] ^= 1
    return bytes(data)


def test_export_is_complete_or_not_there(call: Call, here: Path) -> None:
    """A half of a history looks like a whole one to git; and an error of a full disk says which file was to be made."""
    make_project(here, is_imported=True)
    here.joinpath("bad.bundle").write_bytes(_damaged(here / "project.bundle"))
    here.joinpath("out").write_bytes(b"older")
    here.joinpath("link").symlink_to("out")
    for name in ("link", "new"):
        assert call("repo", "export", "bad.bundle", "--out", name).code == 1
    assert (here.joinpath("out").read_bytes(), here.joinpath("new").exists()) == (b"older", False)
    assert call("repo", "export", "code/project", "--out", "/dev/full").err == (
        "penstock: /dev/full: No space left on device\n"
    )
    assert call("repo", "export", "code/project", "--out", "link").code == 0
    assert here.joinpath("link").is_symlink()
    exported = here.joinpath("out").read_bytes()
    assert exported == call("repo", "export", "code/project").raw
    assert not list(here.glob(".*"))


def test_standard_output_by_its_name_has_the_export_alone(here: Path) -> None:
    """A shell that appends to a file gets the export behind what was there, and no summary in the middle of it."""
    make_project(here, is_imported=True)
    (here / "out").write_bytes(b"# before\n")
    for command in ("export code/project --out /dev/stdout", "bundle create code/project /dev/stdout"):
        with (here / "out").open("ab") as file:
            arguments = [sys.executable, "-m", "penstock", "repo", *command.split()]
            subprocess.run(arguments, cwd=here, stdout=file, check=True)
    before, export, bundle = (here / "out").read_bytes().partition(b"feature done\n")
    assert (before, export) == (b"# before\n", b"feature done\n")
    assert b"\ndone\nPSBUNDL\x01" in bundle
    assert bundle.endswith(b"PSBUNDL\x01")


def test_log_has_commits_of_the_same_second_in_order(call: Call, here: Path) -> None:
    """A script commits many times in a second, and a tag in the middle is no reason to list an ancestor first."""
    history = History()
    for number in range(12):
        history.commit([number] if number else (), message=b"%d\n" % number)
        history.name(b"refs/tags/v%d" % number, history.count)
    history.parts = [re.sub(rb"> 17\d+ ", b"> 1700000000 ", part) for part in history.parts]
    history.write(here / "project")
    call("repo", "import", "project", "code/x")
    assert [line.split("\t")[-1] for line in call("repo", "log", "code/x").lines] == [*map(str, reversed(range(12)))]


def test_names_of_paths_and_branches_may_have_an_at_sign(call: Call, here: Path) -> None:
    """Bots that update packages name branches after them: packages/@types/node."""
    history = make_project(here, is_imported=False)
    history.name(b"refs/heads/packages/@types/node", history.commit([2], {b"icon@2x.png": plain(b"x")}))
    history.write(here / "project")
    call("repo", "import", "project", "code/x")
    assert call("repo", "cat", "code/x", "icon@2x.png@packages/@types/node").out == "x"
    assert "no revision 'gone'" in call("repo", "cat", "code/x", "icon@2x.png@gone").err
    history.name(b"refs/heads/main", history.count)
    history.write(here / "project")
    call("repo", "import", "project", "code/x")
    for place in ("icon@2x.png", "icon@2x.png@main"):
        assert call("repo", "cat", "code/x", place).out == "x"
    assert "no revision '3x.png'" in call("repo", "cat", "code/x", "icon@3x.png").err


def test_progress_is_shown_on_a_terminal(call_on_terminal: CallOnTerminal, here: Path) -> None:
    """An import of a long history takes minutes; output on a terminal has dates."""
    make_project(here, is_imported=False)
    assert "importing" in call_on_terminal("repo", "import", "project", "code/x")
    assert "2023-11-14T22:14:20" in call_on_terminal("repo", "log", "code/x")
