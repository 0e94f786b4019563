"""What an import from git does to branches and tags: it does not lose those of another git repository."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from penstock.errors import BadArgument, ForeignNames
from penstock.repo import Everything, Ref, Repository
from penstock.repo import _git_names as git_names
from penstock.repo.git import import_git
from tests.repo.git_history import History, git, plain
from tests.repo.streams import contents, history

if TYPE_CHECKING:
    from pathlib import Path

    from penstock import Store


@pytest.fixture
def repo(store: Store) -> Repository:
    return Repository.open(store, "code/history", create=True)


def chain(length: int, *, text: bytes = b"") -> History:
    """Return commits one behind another, the last of which is main, and every second a tag."""
    made = History()
    for number in range(length):
        made.commit([number] if number else (), {b"f": plain(b"%d %b" % (number, text))})
        if number % 2:
            made.name(b"refs/tags/v%d" % number, made.count)
    made.name(b"refs/heads/main", made.count)
    return made


def test_foreign_names_are_refused_and_forced(repo: Repository, store: Store, tmp_path: Path) -> None:
    """Nothing is inserted, so the right import is not held up; the error names a few names of many, and counts all."""
    import_git(chain(12).write(tmp_path / "one"), repo)
    before = contents(repo.get_repository_stream(Everything()))
    other = chain(3, text=b"other").write(tmp_path / "other")
    with pytest.raises(ForeignNames, match="refs/tags/v11, refs/tags/v3 and 3 others in code/history") as refused:
        import_git(other, repo)
    assert len(refused.value.names) == 8, "HEAD, main and six tags"
    assert contents(Repository.open(store, repo.stream).get_repository_stream(Everything())) == before
    forced = import_git(other, repo, force=True)
    assert (len(forced.moved), len(forced.removed), set(repo.refs())) == (3, 5, set(forced.refs))
    with pytest.raises(BadArgument, match="force"):
        import_git(other, repo, force="yes")  # type: ignore[arg-type]


def test_names_that_do_not_come_from_git_are_foreign(repo: Repository, tmp_path: Path) -> None:
    """Revisions of other programs have other ids, which git cannot even look up."""
    repo.insert_stream(history(2))
    repo.set_refs({b"refs/heads/main": Ref(b"r1")})
    with pytest.raises(ForeignNames, match="refs/heads/main"):
        import_git(chain(1).write(tmp_path / "one"), repo)
    assert repo.refs() == {b"refs/heads/main": Ref(b"r1")}


def test_shallow_clone_that_ends_at_what_is_stored_follows(repo: Repository, tmp_path: Path) -> None:
    """A machine that fetches the last commits only brings these; where it cannot see whether they follow, it asks."""
    source = chain(4)
    source.write(tmp_path / "source")
    for name in git(tmp_path / "source", "tag").decode().split():
        git(tmp_path / "source", "tag", "-d", name)
    import_git(tmp_path / "source", repo)
    for new in (1, 2):
        for _ in range(new):
            source.commit([source.count], {b"f": plain(b"%d" % source.count)})
        source.name(b"refs/heads/main", source.count)
        source.write(tmp_path / "source")
        clone = f"clone-{new}"
        git(tmp_path, "clone", "-q", "--bare", "--depth=1", f"file://{tmp_path / 'source'}", clone)
        if new == 1:
            assert import_git(tmp_path / clone, repo).moved == {}
        else:
            with pytest.raises(ForeignNames):
                import_git(tmp_path / clone, repo)
    assert import_git(tmp_path / "source", repo).revisions == 2


def test_name_that_somebody_else_sets_meanwhile_is_not_lost(repo: Repository, store: Store, tmp_path: Path) -> None:
    """A push may come while a long import runs: what it brought has to stay."""
    made = chain(2)
    import_git(made.write(tmp_path / "one"), repo)
    made.name(b"refs/heads/main", made.commit([2]))
    made.write(tmp_path / "one")

    def push(done: int, _: int) -> None:
        if not done:
            other = Repository.open(store, repo.stream)
            other.insert_stream(history(1))
            other.set_refs(other.refs() | {b"refs/heads/theirs": Ref(b"r0")})

    with pytest.raises(ForeignNames, match="refs/heads/theirs"):
        import_git(tmp_path / "one", repo, on_progress=push)
    repo.refresh()
    assert repo.refs()[b"refs/heads/theirs"] == Ref(b"r0")


def test_merged_branch_that_was_deleted_goes_without_a_question(repo: Repository, tmp_path: Path) -> None:
    """That is what happens to branches; main follows, through the merge, and has not moved elsewhere."""
    made = chain(1)
    side = made.commit([1], {b"side": plain(b"x")})
    made.name(b"refs/heads/side", side)
    import_git(made.write(tmp_path / "one"), repo)
    made.name(b"refs/heads/main", made.commit([1, side], {b"side": plain(b"x")}))
    made.write(tmp_path / "one")
    git(tmp_path / "one", "branch", "-D", "side")
    git(tmp_path / "one", "gc", "-q", "--prune=now")
    result = import_git(tmp_path / "one", repo)
    assert (result.revisions, result.moved, list(result.removed)) == (1, {}, [b"refs/heads/side"])


@pytest.mark.parametrize("seed", range(4))
def test_what_follows_is_what_git_says(
    repo: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Branches go forward, back and aside, among old and new commits with merges: git is asked about each of them."""
    monkeypatch.setattr(git_names, "_NAMES_AT_ONCE", 7)
    rng, made, folder = random.Random(seed), History(), tmp_path / "one"

    def grow() -> list[bytes]:
        for _ in range(30):
            made.commit(rng.sample(range(1, made.count + 1), min(made.count, rng.choice([0, 1, 1, 1, 2, 3]))))
        for branch in range(20):
            made.name(b"refs/heads/b%d" % branch, rng.randint(1, made.count))
        made.write(folder)
        return git(folder, "for-each-ref", "--format=%(objectname)", "refs/heads").split()

    before = grow()
    import_git(folder, repo)
    after = grow()
    names = git(folder, "for-each-ref", "--format=%(refname)", "refs/heads").split()
    expected = {
        name
        for name, old, new in zip(names, before, after, strict=True)
        if git(folder, "rev-list", old.decode(), "--not", new.decode())
    }
    moved = import_git(folder, repo).moved
    assert moved.keys() - {b"HEAD"} == expected
    assert 3 < len(expected) < 20
