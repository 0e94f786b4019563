"""Copies of repositories: only what is new, also to and from a server, and on after an interruption."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from penstock.client import RemoteStore, ServerFinder
from penstock.embedded import open_store
from penstock.errors import RefsDiverged, StoreClosed
from penstock.repo import REVISIONS, Between, Bundle, Everything, Ref, Repository, copy_revisions
from penstock.repo import _copy as copies
from penstock.server import FlightService
from tests.repo.streams import Items, contents, history, keys

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.stream import Engine


def test_copy_to_and_from_a_server_goes_on_where_it_was(
    store: Engine, remote: RemoteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection breaks in the middle of a large copy; what has arrived has not to be sent again."""
    monkeypatch.setattr(copies, "_BATCH_REVISIONS", 10)
    source = Repository.open(store, "code/source", create=True)
    source.insert_stream(history(35))
    tag = (b"tags", b"t1", b"r30")
    source.set_refs({b"refs/heads/main": Ref(b"r34"), b"refs/tags/v1": Ref(b"r30", b"t1")}, tags={tag: b"tag"})

    def stop(done: int, total: int) -> None:
        assert total == 35
        if done == 20:
            raise ConnectionError

    there = Repository.open(remote, "code/there", create=True)
    with pytest.raises(ConnectionError):
        copy_revisions(source, there, on_progress=stop)
    assert there.refs() == {}
    result = copy_revisions(source, Repository.open(remote, "code/there"))
    assert (result.revisions, result.items, result.names) == (15, 46, (b"refs/heads/main", b"refs/tags/v1"))
    back = Repository.open(store, "code/back", create=True)
    assert copy_revisions(Repository.open(remote, "code/there"), back).revisions == 35
    assert (back.refs(), back.text(tag)) == (source.refs(), b"tag")
    assert copy_revisions(source, back) == copies.CopyResult(0, 0, ())
    whole = contents(source.get_repository_stream(Everything(), complete_inventory=True))
    assert contents(back.get_repository_stream(Everything(), complete_inventory=True)) == whole


def test_copy_takes_no_more_space_than_what_was_copied(store: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Versions of a file that come in many requests are stored together, as they were."""
    monkeypatch.setattr(copies, "_REQUEST_REVISIONS", 5)
    source, copy = (Repository.open(store, name, create=True) for name in ("code/source", "code/copy"))
    source.insert_stream(history(40, text=os.urandom(500_000)))
    source.set_refs({b"refs/heads/main": Ref(b"r39")})
    reported: list[int] = []
    assert copy_revisions(source, copy, on_progress=lambda done, _: reported.append(done)).revisions == 40
    assert reported == list(range(0, 41, 5))
    assert store.stream("code/copy").size_bytes < 1.2 * store.stream("code/source").size_bytes


def test_copy_outlives_a_server_that_starts_again(store: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that is updated under a long push or pull costs time, and nothing that was copied."""
    monkeypatch.setattr(copies, "_BATCH_REVISIONS", 10)
    source = Repository.open(store, "code/source", create=True)
    source.insert_stream(history(30))
    source.set_refs({b"refs/heads/main": Ref(b"r29")})
    services = [FlightService(store, "grpc://127.0.0.1:0")]

    def restart(done: int, _: int) -> None:
        if done == 10:
            services[-1].shutdown()
            services.append(FlightService(store, f"grpc://127.0.0.1:{services[0].port}"))

    try:
        with RemoteStore(ServerFinder(f"penstock://127.0.0.1:{services[0].port}")) as remote:
            there = Repository.open(remote, "code/there", create=True)
            assert copy_revisions(source, there, on_progress=restart).revisions == 30
            back = Repository.open(store, "code/back", create=True)
            assert copy_revisions(there, back, on_progress=restart).revisions == 30
    finally:
        services[-1].shutdown()
    assert (len(services), back.refs()) == (3, source.refs())
    assert back.check().is_good


def test_copy_into_a_store_that_is_closed_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What was copied until then is there when it is opened again, and no branch leads to what is not."""
    monkeypatch.setattr(copies, "_BATCH_REVISIONS", 10)
    with open_store("memory:") as here:
        source = Repository.open(here, "code/x", create=True)
        source.insert_stream(history(30))
        source.set_refs({b"refs/heads/main": Ref(b"r29")})
        with open_store(tmp_path / "data") as gone, pytest.raises(StoreClosed):
            copy_revisions(
                source,
                Repository.open(gone, "code/x", create=True),
                on_progress=lambda done, _: gone.close() if done == 20 else None,
            )
        with open_store(tmp_path / "data") as again:
            target = Repository.open(again, "code/x")
            assert (len(list(target.revisions())), target.refs()) == (20, {})
            assert copy_revisions(source, target).revisions == 10


def test_branch_that_has_diverged_is_moved_by_force_only(store: Engine) -> None:
    """A push must not hide the work of others; and nothing is copied before this is known."""
    source, target = (Repository.open(store, name, create=True) for name in ("code/source", "code/target"))
    source.insert_stream(history(3))
    source.set_refs({b"refs/heads/main": Ref(b"r2")})
    copy_revisions(source, target)
    target.insert_stream(Items().add((REVISIONS, b"other"), ((REVISIONS, b"r1"),), b"x"))
    target.set_refs({b"refs/heads/main": Ref(b"other"), b"refs/heads/own": Ref(b"other")})
    source.insert_stream(history(1, start=3))
    source.set_refs({b"refs/heads/main": Ref(b"r3")})
    with pytest.raises(RefsDiverged, match="refs/heads/main"):
        copy_revisions(source, target)
    assert (REVISIONS, b"r3") not in target
    copy_revisions(source, target, force=True)
    assert target.refs() == {b"refs/heads/main": Ref(b"r3"), b"refs/heads/own": Ref(b"other")}
    assert (REVISIONS, b"other") in keys(target.get_repository_stream(Everything()))


@pytest.mark.parametrize("branch", [b"refs/heads/other", b"refs/heads/main"])
def test_pushes_at_once_do_not_hide_each_other(store: Engine, branch: bytes) -> None:
    """The branch that another push has brought meanwhile stays, and one that it has moved has diverged."""
    ours, theirs = (Repository.open(store, name, create=True) for name in ("code/ours", "code/theirs"))
    for source, name, revision in ((ours, b"refs/heads/main", b"a"), (theirs, branch, b"b")):
        source.insert_stream(history(1).add((REVISIONS, revision), ((REVISIONS, b"r0"),), revision))
        source.set_refs({name: Ref(revision), b"refs/heads/base": Ref(b"r0")})
    target = Repository.open(store, "code/target", create=True)

    def push(done: int, _: int) -> None:
        if done == 0:
            copy_revisions(theirs, Repository.open(store, "code/target"))

    if branch == b"refs/heads/main":
        with pytest.raises(RefsDiverged):
            copy_revisions(ours, target, on_progress=push)
        assert target.refs() == theirs.refs()
    else:
        assert copy_revisions(ours, target, on_progress=push).names == (b"refs/heads/main",)
        assert target.refs() == theirs.refs() | ours.refs()


def test_names_are_changed_by_several_at_once(store: Engine) -> None:
    """Each change is a new version; a process that was too late tries again, and no version is lost."""
    first, second = Repository.open(store, "code/x", create=True), Repository.open(store, "code/x")
    for number in range(9):
        for repository in (first, second):
            repository.set_refs({b"a": Ref(b"r%d" % number), b"b": Ref(repository.stream.encode())})
    assert second.refs()[b"a"] == Ref(b"r8")
    versions = [key for key in keys(second.get_repository_stream(Everything())) if key[0] == b"refs"]
    assert len(versions) == 9, "the same names again are no change"
    assert second.heads() == [b"code/x", b"r8"]


def test_bundle_of_changes_moves_branches(store: Engine, tmp_path: Path) -> None:
    """Changes by mail: a branch goes on where it was, and one that has diverged is not moved unnoticed."""
    source, target = (Repository.open(store, name, create=True) for name in ("code/source", "code/target"))
    source.insert_stream(history(4))
    source.set_refs({b"refs/heads/main": Ref(b"r3"), b"refs/heads/old": Ref(b"r3")})
    copy_revisions(source, target)
    source.insert_stream(history(2, start=4))
    names = {b"refs/heads/main": Ref(b"r5"), b"refs/heads/old": Ref(b"r3"), b"refs/tags/v1": Ref(b"r4", b"t1")}
    source.set_refs(names, tags={(b"tags", b"t1", b"r4"): b"tag"})
    Bundle.write(tmp_path / "b", source.get_repository_stream(Between([b"r5"], [b"r3"])), refs=source.refs())
    with Bundle.open(tmp_path / "b") as changes:
        assert changes.refs().keys() == {b"refs/heads/main", b"refs/tags/v1"}
        assert changes.stacked_on(target).refs() == names, "of a stack, the names of both"
        diverged = Repository.open(store, "code/diverged", create=True)
        copy_revisions(target, diverged)
        diverged.insert_stream(Items().add((REVISIONS, b"other"), ((REVISIONS, b"r3"),), b"x"))
        diverged.set_refs({b"refs/heads/main": Ref(b"other")})
        with pytest.raises(RefsDiverged, match="refs/heads/main"):
            copy_revisions(changes, diverged)
        assert copy_revisions(changes, target).revisions == 2
    assert (target.refs(), target.text((b"tags", b"t1", b"r4"))) == (names, b"tag")
    assert target.check().is_good


def test_names_of_a_stack_are_set_in_its_upper_repository(store: Engine) -> None:
    """However many versions of the names the lower one has, those of the upper one are found again without it."""
    upper, lower = (Repository.open(store, name, create=True) for name in ("code/upper", "code/lower"))
    for number in range(5):
        lower.set_refs({b"refs/heads/main": Ref(b"r%d" % number), b"refs/heads/lower": Ref(b"r0")})
    upper.stacked_on(lower).set_refs({b"refs/heads/main": Ref(b"own")})
    assert Repository.open(store, "code/upper").refs() == {b"refs/heads/main": Ref(b"own")}
    stacked = {b"refs/heads/main": Ref(b"own"), b"refs/heads/lower": Ref(b"r0")}
    assert Repository.open(store, "code/upper").stacked_on(lower).refs() == stacked


def test_heads_are_found_without_names(store: Engine) -> None:
    """A repository that was not made from git may have no branches."""
    repository = Repository.open(store, "code/x", create=True)
    repository.insert_stream(history(3))
    repository.insert_stream(Items().add((REVISIONS, b"side"), ((REVISIONS, b"r0"),), b"x"))
    assert repository.heads() == [b"r2", b"side"]
    assert copy_revisions(repository, Repository.open(store, "code/y", create=True)).revisions == 4


def test_history_behind_changes_that_came_first_is_copied_later(store: Engine, tmp_path: Path) -> None:
    """A branch whose ancestors were silently left out would be a history with a hole that no check finds."""
    source, target = (Repository.open(store, name, create=True) for name in ("code/source", "code/target"))
    source.insert_stream(history(6))
    source.set_refs({b"refs/heads/main": Ref(b"r5")})
    Bundle.write(tmp_path / "b", source.get_repository_stream(Between([b"r5"], [b"r3"]), complete_inventory=True))
    with Bundle.open(tmp_path / "b") as changes:
        assert copy_revisions(changes, target).revisions == 2
    assert target.ghosts() == [b"r3"]
    assert copy_revisions(source, Repository.open(store, "code/target")).revisions == 4
    assert set(Repository.open(store, "code/target").revisions()) == set(source.revisions())
