"""Branches, tags, ids and files of a repository on the command line: what names them, and what must not lose them."""

from __future__ import annotations

import json
import re
import shutil
from typing import TYPE_CHECKING

import pytest

from tests.cli.project import make_project
from tests.repo.git_history import History, git, plain

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Call, CallOnTerminal


def other_project(folder: Path) -> None:
    """Make a git repository that has nothing in common with the project."""
    history = History()
    history.name(b"refs/heads/main", history.commit((), {b"other": plain(b"x")}, message=b"Another one\n"))
    history.write(folder)


def names_of(call: Call) -> dict[str, str]:
    lines = (json.loads(line) for line in call("repo", "refs", "code/project", "--json").lines)
    return {line["name"]: line["revision"] for line in lines}


def test_import_of_another_repository_is_refused_before_anything_changes(call: Call, here: Path) -> None:
    """A typo in the name of the stream replaced every branch and tag of another project, and nothing said so."""
    make_project(here, is_imported=True)
    other_project(here / "other")
    names, revisions = names_of(call), call("repo", "log", "code/project").lines
    refused = call("repo", "import", "other", "code/project")
    assert (refused.code, refused.out, len(refused.err.splitlines())) == (1, "", 1)
    for text in ("HEAD, refs/heads/main, refs/tags/v1 in code/project", "use --force"):
        assert text in refused.err
    assert (names_of(call), call("repo", "log", "code/project").lines) == (names, revisions)
    assert "code/project: 6 items, 1 list of names, all good" in call("repo", "check", "code/project").lines
    forced = call("repo", "import", "other", "code/project", "--force").lines
    main = git(here / "other", "rev-parse", "main").decode().strip()
    assert forced == [
        "code/project: 1 new revision, 2 names",
        f"HEAD: moved from {names['HEAD']} to {main}",
        f"refs/heads/main: moved from {names['HEAD']} to {main}",
        f"refs/tags/v1: removed, it was {names['refs/tags/v1']}",
    ]
    assert len(call("repo", "log", "code/project", names["HEAD"]).lines) == 2, "no revision is lost"


def test_empty_repository_of_git_does_not_remove_all_names(call: Call, here: Path) -> None:
    """`git init` in the wrong folder makes one, and it has no commit that could be compared."""
    make_project(here, is_imported=True)
    git(here, "init", "-q", "empty")
    assert call("repo", "import", "empty", "code/project").code == 1
    assert len(names_of(call)) == 3


def test_names_that_were_moved_in_the_same_repository_are_moved_and_told(call: Call, here: Path) -> None:
    """Who rebases a branch, and deletes another one, imports as always; git still has the commits of before."""
    history = make_project(here, is_imported=True)
    before = names_of(call)
    history.name(b"refs/heads/main", history.commit([1], {b"new": plain(b"x")}))
    history.write(here / "project")
    git(here / "project", "tag", "-d", "v1")
    found = json.loads(call("repo", "import", "project", "code/project", "--json").out)
    assert found["moved"] == {name: before[name] for name in ("HEAD", "refs/heads/main")}
    assert found["removed"] == {"refs/tags/v1": before["refs/tags/v1"]}
    history.name(b"refs/heads/main", history.commit([history.count], {b"new": plain(b"y")}))
    history.write(here / "project")
    again = json.loads(call("repo", "import", "project", "code/project", "--json").out)
    assert (again["revisions"], again["moved"], again["removed"]) == (1, {}, {})


def test_clone_that_is_behind_or_has_diverged_is_refused(call: Call, here: Path) -> None:
    """It lacks commits of the stream, so it cannot be where they were given up."""
    history = make_project(here, is_imported=True)
    shutil.copytree(here / "project", here / "clone")
    history.name(b"refs/heads/main", history.commit([2], {b"new": plain(b"x")}))
    history.write(here / "project")
    call("repo", "import", "project", "code/project")
    assert "refs/heads/main" in call("repo", "import", "clone", "code/project").err
    git(here / "clone", "update-ref", "refs/heads/main", "v1")
    assert call("repo", "import", "clone", "code/project").code == 1
    assert "README.md" in call("repo", "ls", "code/project").out
    assert len(call("repo", "log", "code/project").lines) == 3


def test_refs_and_files_are_listed(call: Call, here: Path) -> None:
    """A user has to see what there is before a name can be typed; a path with a newline is one line all the same."""
    history = make_project(here, is_imported=False)
    files = {b"tool": (b"100755", b"#!"), b"two\nlines": plain(b"x"), b"caf\xe9": (b"120000", b"tool")}
    history.name(b"refs/heads/main", history.commit([2], files))
    history.write(here / "project")
    git(here / "project", "tag", "-a", "-m", "First", "v2", "main")
    refs = json.loads(call("repo", "import", "project", "code/x", "--json").out)["refs"]
    assert call("repo", "refs", "code/x").lines == [f"{revision}\t{name}" for name, revision in sorted(refs.items())]
    tags = [json.loads(line)["tag"] for line in call("repo", "refs", "code/x", "--json").lines]
    assert tags == [None, None, None, git(here / "project", "rev-parse", "v2").decode().strip()]
    rows = [line.split("\t") for line in call("repo", "ls", "code/x").lines]
    assert [(row[0], row[2]) for row in rows] == [
        ("100644", "README.md"),
        ("120000", r"caf\xe9"),
        ("100755", "tool"),
        ("100644", r"two\nlines"),
    ]
    assert json.loads(call("repo", "ls", "code/x", "v1", "--json").out) == {
        "path": "README.md",
        "mode": "100644",
        "kind": "file",
        "text_revision": refs["refs/tags/v1"],
        "file_id": "README.md",
    }
    call("repo", "bundle", "create", "code/x", "x.bundle")
    assert call("repo", "refs", "x.bundle").lines == call("repo", "refs", "code/x").lines
    assert call("repo", "ls", "x.bundle").lines == call("repo", "ls", "code/x").lines
    assert "no revision 'v9'" in call("repo", "ls", "code/x", "v9").err


def test_beginning_of_an_id_is_enough(call: Call, here: Path) -> None:
    """People copy seven digits from git; a branch of that name, or a path with it, goes before."""
    history = make_project(here, is_imported=False)
    history.name(b"refs/heads/main", history.commit([2], {b"photo@2023": plain(b"2023")}))
    history.write(here / "project")
    refs = json.loads(call("repo", "import", "project", "code/x", "--json").out)["refs"]
    first = refs["refs/tags/v1"]
    for text in (first[:4], first[:7], first[:39]):
        assert call("repo", "log", "code/x", text).lines[0].startswith(first)
        assert call("repo", "cat", "code/x", f"README.md@{text}").out == "# Project\n"
    assert call("repo", "cat", "code/x", "photo@2023").out == "2023"
    for text in (first[:3], "0" * 7, first + "0", first[:7].replace(first[6], "x")):
        assert f"no revision '{text}'" in call("repo", "log", "code/x", text).err
    history.name(b"refs/heads/" + first[:7].encode(), history.count)
    history.write(here / "project")
    call("repo", "import", "project", "code/x")
    assert len(call("repo", "log", "code/x", first[:7]).lines) == 3
    call("repo", "bundle", "create", "code/x", "x.bundle", "--known", first[:5])
    assert len(call("repo", "log", "x.bundle").lines) == 2


def test_beginning_of_two_ids_is_ambiguous(call: Call, here: Path) -> None:
    """Either would be a guess; the message has what to choose from."""
    history = History()
    for number in range(600):
        history.commit([number] if number else (), message=b"%d\n" % number)
    history.name(b"refs/heads/main", history.count)
    history.write(here / "project")
    call("repo", "import", "project", "code/x")
    ids = [line.split("\t")[0] for line in call("repo", "log", "code/x").lines]
    twice = next(name[:4] for name in ids if sum(other.startswith(name[:4]) for other in ids) == 2)
    first, second = sorted(name for name in ids if name.startswith(twice))
    refused = call("repo", "log", "code/x", twice)
    assert (refused.code, refused.err) == (
        2,
        f"penstock: 2 revisions begin with '{twice}': {first}, {second}: use more digits\n",
    )


def test_log_on_a_narrow_terminal_keeps_ids_and_times_whole(
    call: Call, call_on_terminal: CallOnTerminal, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An id over two lines cannot be copied."""
    history = make_project(here, is_imported=False)
    history.name(b"refs/heads/main", history.commit([2], message=b"Say what " + b"it does " * 8))
    history.parts = [part.replace("Jörg".encode(), b"Maximiliane-Sophie") for part in history.parts]
    history.write(here / "project")
    call("repo", "import", "project", "code/x")
    monkeypatch.setenv("COLUMNS", "80")
    shown = re.sub(r"\x1b\[[0-9;]*m", "", call_on_terminal("repo", "log", "code/x"))
    assert all(len(line) <= 80 for line in shown.splitlines())
    newest = call("repo", "log", "code/x", "--limit", "1").out.split("\t")[0]
    row = next(line.rstrip() for line in shown.splitlines() if line.startswith(newest[:12]))
    assert row.split()[:4] == [newest[:12], "2023-11-14T22:16:20Z", "Maximiliane-Sop…", "Say"]
    assert row.endswith("Say what it does it does"), "the message has what the others leave"
    assert len(call("repo", "log", "code/x", row.split()[0]).lines) == 3


@pytest.mark.parametrize(
    "arguments", ["push ./backup code/new", "push code/gone code/new", "import project bad --store code/new"]
)
def test_mistaken_command_creates_no_store(call: Call, here: Path, arguments: str) -> None:
    """Swapped arguments of push made a store in a folder that was called like the stream."""
    make_project(here, is_imported=True)
    assert call("repo", *arguments.split()).code
    assert not here.joinpath("code").exists()


def test_push_of_no_stream_says_which_argument_is_which(call: Call, here: Path) -> None:
    """The advice was to create the stream."""
    make_project(here, is_imported=True)
    refused = call("repo", "push", "code/gone", "backup")
    assert refused.err == (
        "penstock: no stream 'code/gone' in ./penstock-data: name the repository first, then the store to push to\n"
    )


def test_option_that_means_nothing_is_refused(call: Call, here: Path) -> None:
    """`--as` beside a bundle was ignored, as if it had named the stream to pull into."""
    make_project(here, is_imported=True)
    refused = call("repo", "pull", "code/x", "project.bundle", "--as", "foo/bar")
    assert (refused.code, "project.bundle is a bundle: leave --as out" in refused.err) == (2, True)
    assert "code/x" not in call("stream", "ls").out


def test_bundle_of_changes_says_what_it_needs(call: Call, here: Path) -> None:
    """Its receiver learns which revision to get first, and not about stacks, which the command line does not have."""
    history = make_project(here, is_imported=True)
    many = history.commit([2], {b"file-%d" % number: plain(b"") for number in range(8)})
    history.name(b"refs/tags/many", many)
    history.name(b"refs/heads/main", history.commit([many], {b"file-1": plain(b"x")}))
    history.write(here / "project")
    known = json.loads(call("repo", "import", "project", "code/project", "--json").out)["refs"]["refs/tags/many"]
    call("repo", "bundle", "create", "code/project", "new.bundle", "--known", "many")
    pulled = call("repo", "pull", "code/part", "new.bundle").err
    assert pulled == (
        f"penstock: code/part lacks revision {known}, on which the source builds: copy that revision first\n"
    )
    for arguments in ("ls new.bundle", "cat new.bundle file-1", "cat new.bundle file-2"):
        refused = call("repo", *arguments.split())
        assert (refused.code, len(refused.err.splitlines())) == (1, 1)
        assert "it is a bundle of changes; pull it into a repository that has revision" in refused.err


def test_check_counts_foreign_events(call: Call, here: Path) -> None:
    """A line that was written to the wrong stream does no harm, but its writer misses it elsewhere."""
    make_project(here, is_imported=True)
    call("write", "code/project", stdin=b"21.5\n21.7\n")
    checked = call("repo", "check", "code/project")
    assert (checked.code, checked.lines) == (
        0,
        ["code/project: 6 items, 1 list of names, all good; 2 foreign events passed over"],
    )
    assert json.loads(call("repo", "check", "code/project", "--json").out)["foreign_events"] == 2


def test_counts_of_items_agree(call: Call, here: Path) -> None:
    """One repository had 39 items in a check, 37 in a push, and 38 where it was pushed to."""
    history = make_project(here, is_imported=True)
    for number in range(3):
        history.name(b"refs/heads/main", history.commit([2 + number], {b"new": plain(b"%d" % number)}))
        history.write(here / "project")
        call("repo", "import", "project", "code/project")
    checked, made = (
        json.loads(call("repo", *command.split(), "--json").out)
        for command in ("check code/project", "bundle create code/project x.bundle")
    )
    pushed = json.loads(call("repo", "push", "code/project", "new", "--json").out)
    there = json.loads(call("repo", "check", "code/project", "--store", "new", "--json").out)
    assert (checked["items"], checked["name_lists"]) == (15, 4)
    assert [found["items"] for found in (made, pushed, there)] == [15, 15, 15]
