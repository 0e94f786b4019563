"""Git in and out: what comes out is what went in, commit by commit."""

from __future__ import annotations

import io
import threading
from concurrent.futures import ThreadPoolExecutor
from subprocess import CalledProcessError
from typing import TYPE_CHECKING

import pytest

from penstock.errors import BadArgument, BadRecord, RepositoryError
from penstock.repo import INVENTORIES, REVISIONS, SIGNATURES, TEXTS, Between, Everything, Ref, Repository, Revisions
from penstock.repo import _git_import as git_import
from penstock.repo.git import export_git, import_git
from tests.repo.git_history import LINES, SUBMODULE, History, awkward_history, git, plain
from tests.repo.streams import Items, contents

if TYPE_CHECKING:
    from pathlib import Path

    from penstock import Store


@pytest.fixture
def repo(store: Store) -> Repository:
    return Repository.open(store, "code/history", create=True)


def refs_of(folder: Path) -> bytes:
    return git(folder, "for-each-ref", "--format=%(objectname) %(refname)")


def exported(repo: Repository, folder: Path, *searches: Between) -> Path:
    """Let git make a repository of what was exported."""
    git(folder.parent, "init", "-q", "--bare", folder.name)
    for search in searches or (None,):
        stream = io.BytesIO()
        export_git(repo, stream, search)
        git(folder, "fast-import", "--quiet", "--date-format=raw-permissive", stdin=stream.getvalue())
    return folder


def test_git_gets_back_what_it_gave(repo: Repository, tmp_path: Path) -> None:
    """Commit ids cover trees, modes, names, messages, dates and ancestors: all of them are the same."""
    source = awkward_history().write(tmp_path / "source")
    for name, tagged in (("v1", "light"), ("inner", "v1"), ("outer", "inner"), ("v1", "v1")):
        git(source, "tag", "-a", "-f", name, "-m", "One\n\nlines", tagged)
    git(source, "tag", "-d", "inner")  # of which only the outer one knows
    result = import_git(source, repo)
    assert (result.revisions, result.skipped) == (14, ())
    target = exported(repo, tmp_path / "target")
    assert refs_of(target) == refs_of(source)
    assert repo.check().is_good


def test_files_keep_their_ids_through_renames_and_merges(repo: Repository, tmp_path: Path) -> None:
    """The history of a file does not end where it is renamed, nor at a merge."""
    source = awkward_history().write(tmp_path / "source")
    import_git(source, repo)
    refs = repo.refs()
    merge = refs[b"refs/tags/light"].revision
    at_merge, at_end = repo.inventory(merge), repo.inventory(refs[b"refs/heads/main"].revision)
    moved = at_merge[b"moved/b.txt"]
    assert moved.file_id == b"dir/b.txt"
    (before,) = repo.parents(moved.key)
    (root,) = repo.parents(before)
    assert repo.text(root) == LINES + b"b\n"
    assert moved.revision != merge, "the merge has changed nothing in it"
    first_parent, _ = repo.revision_parents(merge) or []
    assert at_merge[b"a.txt"] == repo.inventory(first_parent)[b"a.txt"]
    assert (at_merge[b"run"].kind, at_merge[b"run"].revision) == ("file", root[-1]), "only its mode"
    assert repo.text(at_merge[b"sub"].key) == SUBMODULE
    assert repo.parents(at_end[b"dir/b.txt"].key) == (), "another file under the same name"
    assert (at_end[b"link/inside"].kind, at_end[b"empty"].kind) == ("file", "symlink")


def test_text_of_a_merge_has_a_parent_on_each_side(repo: Repository, tmp_path: Path) -> None:
    """Lines of both sides are found again by annotations, also if one side has renamed the file."""
    history = History()
    root = history.commit((), {b"a": plain(LINES)})
    left = history.commit([root], {b"a": plain(b"left\n" + LINES)})
    right = history.commit([root], {b"a": None, b"b": plain(LINES + b"right\n")})
    merge = history.commit([left, right], {b"a": None, b"b": plain(b"left\n" + LINES + b"right\n")})
    history.commit([merge], {b"a": plain(b"another file\n"), b"b": plain(b"last\n")})
    history.name(b"refs/heads/main", history.count)
    import_git(history.write(tmp_path / "source"), repo)
    head = repo.refs()[b"refs/heads/main"].revision
    (merged,) = repo.revision_parents(head) or []
    sides = repo.revision_parents(merged) or []
    key = repo.inventory(merged)[b"b"].key
    assert key[1] == b"a"
    assert repo.parents(key) == tuple((*key[:2], side) for side in sides)
    origins = [origin for origin, _ in repo.annotate(key)]
    assert (origins[0], origins[-1]) == (sides[0], sides[1])
    last = repo.inventory(head)
    assert (last[b"b"].file_id, last[b"a"].file_id) == (b"a", b"a@" + head)


def test_only_new_commits_are_imported(repo: Repository, tmp_path: Path) -> None:
    """An import that runs every hour takes what an hour has brought; a branch may also go back."""
    history = awkward_history()
    source = history.write(tmp_path / "source")
    import_git(source, repo)
    first = repo.refs()
    known = set(repo.revisions())
    assert import_git(source, repo).revisions == 0
    history.name(b"refs/heads/main", history.commit([13, 14], {b"later": plain(b"x")}))
    git(source, "update-ref", "-d", "refs/tags/light")
    assert import_git(history.write(source), repo).revisions == 1
    assert sorted(repo.refs()) == [b"HEAD", b"refs/heads/main", b"refs/heads/other/line"]
    heads = [ref.revision for ref in first.values()]
    target = exported(repo, tmp_path / "target", Between(heads), Between(repo.heads(), heads))
    assert git(target, "rev-parse", "main") == git(source, "rev-parse", "main")
    assert len(set(repo.revisions()) - known) == 1
    git(source, "update-ref", "refs/heads/main", "main^1")
    assert import_git(source, repo).revisions == 0
    assert repo.refs()[b"refs/heads/main"] == first[b"refs/heads/main"]


def test_import_that_was_stopped_goes_on(
    repo: Repository, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches are atomic, parents first, and inventories of an earlier batch are read from the repository."""
    source = awkward_history().write(tmp_path / "source")
    other = Repository.open(store, "code/other", create=True)
    import_git(source, other)
    monkeypatch.setattr(git_import, "_BATCH_REVISIONS", 2)
    monkeypatch.setattr(git_import, "_INVENTORY_LINES_MAX", 1)

    def stop(done: int, total: int) -> None:
        assert total == 14
        if done == 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        import_git(source, repo, on_progress=stop)
    assert (len(list(repo.revisions())), repo.refs()) == (6, {})
    assert import_git(source, repo).revisions == 8
    assert contents(repo.get_repository_stream(Everything())) == contents(other.get_repository_stream(Everything()))


def test_merge_keeps_the_order_of_its_parents_when_the_first_is_missing(repo: Repository, tmp_path: Path) -> None:
    """The second parent in its place, or a file of the first that the merge has removed, would be another commit."""
    history = History()
    left = history.commit((), {b"a": plain(b"left\n"), b"removed": plain(b"x\n")})
    right = history.commit((), {b"b": plain(b"right\n")})
    history.name(b"refs/heads/main", history.commit([left, right], {b"removed": None, b"b": plain(b"right\n")}))
    source = history.write(tmp_path / "source")
    merge, first, second = git(source, "rev-parse", "main", "main^1", "main^2").split()
    full = Repository.open(repo._store, "code/full", create=True)
    import_git(source, full)
    parts = full.get_repository_stream(Revisions([merge, first, second]), complete_inventory=True)
    missing = {(REVISIONS, first), (INVENTORIES, first)}
    items = [(record.key_prefix, item) for record in parts.iter_contents() for item in record.entries]
    repo.insert_stream(Items([(prefix, item) for prefix, item in items if (*prefix, *item.key) not in missing]))
    repo.set_refs({b"refs/heads/again": Ref(merge)})
    stream = io.BytesIO()
    assert export_git(repo, stream).missing == (first,)
    git(source, "fast-import", "--quiet", stdin=stream.getvalue())
    assert git(source, "rev-parse", "again").strip() == merge


def test_two_imports_at_once_make_one_history(
    repo: Repository, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Imports on two machines make the same items, so neither is in the way of the other; nothing is there twice."""
    source = awkward_history().write(tmp_path / "source")
    other = Repository.open(store, "code/other", create=True)
    import_git(source, other)
    monkeypatch.setattr(git_import, "_BATCH_REVISIONS", 2)
    both_looked = threading.Barrier(2)

    def wait(done: int, _: int) -> None:
        if done in {0, 6}:
            both_looked.wait(10)

    with ThreadPoolExecutor(2) as threads:
        repositories = [repo, Repository.open(store, "code/history")]
        imports = [threads.submit(import_git, source, repository, on_progress=wait) for repository in repositories]
        assert [result.result().revisions for result in imports] == [14, 14]
    for repository in repositories:
        repository.refresh()
        found = repository.get_repository_stream(Everything(), complete_inventory=True)
        assert contents(found) == contents(other.get_repository_stream(Everything(), complete_inventory=True))
        assert repository.check().is_good


def test_signed_commit_keeps_its_signature_and_its_tree(repo: Repository, tmp_path: Path) -> None:
    """Git's stream cannot express a signature, so only the id is another one."""
    source = awkward_history().write(tmp_path / "source")
    commit = git(source, "cat-file", "commit", "main")
    signed = commit.replace(b"\n\n", b"\ngpgsig -----BEGIN\n line\n -----END\n\n", 1)
    name = git(source, "hash-object", "-t", "commit", "-w", "--stdin", stdin=signed).strip()
    git(source, "update-ref", "refs/heads/main", name.decode())
    import_git(source, repo)
    assert repo.text((SIGNATURES, name)) == b"-----BEGIN\nline\n-----END"
    assert repo.text((REVISIONS, name)) == commit
    target = exported(repo, tmp_path / "target")
    assert git(target, "rev-parse", "main^{tree}", "main^1") == git(source, "rev-parse", "main^{tree}", "main^1")


def test_tag_of_a_tree_is_skipped_and_an_empty_repository_is_fine(repo: Repository, tmp_path: Path) -> None:
    """A repository consists of revisions; a name for something else is reported."""
    source = History().write(tmp_path / "source")
    assert import_git(source, repo).revisions == 0
    tree = git(source, "mktree").strip().decode()
    git(source, "update-ref", "refs/tags/tree", tree)
    assert import_git(source, repo).skipped == (b"refs/tags/tree",)
    with pytest.raises(BadArgument, match="no git repository in"):
        import_git(tmp_path, repo)


def test_tree_that_leaves_its_folder_is_refused(repo: Repository, tmp_path: Path) -> None:
    """Git itself refuses such a tree, but an attacker can make one."""
    source = History().write(tmp_path / "source")
    blob = git(source, "hash-object", "-w", "--stdin", stdin=b"x").strip().decode()
    tree_data = b"100644 ..\0" + bytes.fromhex(blob)
    tree = git(source, "hash-object", "-t", "tree", "-w", "--literally", "--stdin", stdin=tree_data).strip().decode()
    commit = git(source, "commit-tree", "-m", "bad", tree).strip().decode()
    git(source, "update-ref", "refs/heads/main", commit)
    with pytest.raises(BadRecord, match=r"invalid path '\.\.'"):
        import_git(source, repo)
    assert list(repo.revisions()) == []


def test_shallow_clone_has_ghosts_and_a_damaged_one_is_an_error(repo: Repository, store: Store, tmp_path: Path) -> None:
    """A parent that git says is elsewhere is named and missing; one that was lost must not look the same."""
    source = awkward_history().write(tmp_path / "source")
    git(tmp_path, "clone", "-q", "--bare", "--depth=2", f"file://{source}", "shallow")
    assert import_git(tmp_path / "shallow", repo).revisions == 2
    head = repo.refs()[b"refs/heads/main"].revision
    (parent,) = repo.revision_parents(head) or []
    (ghost,) = repo.revision_parents(parent) or []
    assert ((REVISIONS, parent) in repo, (REVISIONS, ghost) in repo) == (True, False)
    assert repo.check().is_good
    assert import_git(tmp_path / "shallow", repo).revisions == 0
    stream = io.BytesIO()
    assert export_git(repo, stream).missing == (ghost,)
    with pytest.raises(CalledProcessError):
        exported(repo, tmp_path / "empty")
    git(tmp_path, "init", "-q", "--bare", "behind")
    git(tmp_path / "behind", "fetch", "-q", str(source), f"{ghost.decode()}:refs/heads/old")
    git(tmp_path / "behind", "fast-import", "--quiet", stdin=stream.getvalue())
    assert git(tmp_path / "behind", "rev-parse", "main").strip() == head, "the same commit, with all its ancestors"
    git(tmp_path / "shallow", "fetch", "-q", "--unshallow")
    assert import_git(tmp_path / "shallow", repo).revisions == int(git(source, "rev-list", "--count", "main")) - 2
    assert refs_of(exported(repo, tmp_path / "target")) == refs_of(tmp_path / "shallow")
    git(source, "repack", "-adq")
    (pack,) = source.glob("objects/pack/*.pack")
    pack.chmod(0o644)
    whole = pack.read_bytes()
    for place in range(20, len(whole), 97):
        pack.write_bytes(whole[:place] + bytes([whole[place] ^ 64]) + whole[place + 1 :])
        name = f"code/damaged-{place}"
        try:
            import_git(source, Repository.open(store, name, create=True))
        except RepositoryError as error:
            assert "the git repository" in str(error)  # noqa: PT017 - some bytes do not matter
        else:
            assert Repository.open(store, name).check().is_good


@pytest.mark.parametrize("place", ["name", "tag", "submodule", "parent"])
def test_nothing_in_a_repository_becomes_a_command_of_git(repo: Repository, place: str) -> None:
    """A bundle from elsewhere must not write commits of its own making, which no log of it shows, into git."""
    command = b"x\nreset refs/heads/main\nfrom 0123456789012345678901234567890123456789\n\n"
    commit = b"author A <a> 1 +0000\ncommitter A <a> 1 +0000\n\n"
    parent, revision, tag = command if place == "parent" else b"1" * 40, b"r", (b"tags", b"t", b"r")
    items = Items().add((TEXTS, b"sub", revision), (), command if place == "submodule" else b"0" * 40)
    items.add((INVENTORIES, parent), (), b"").add((REVISIONS, parent), (), commit)
    items.add((INVENTORIES, revision), (), b"160000 r sub sub\n")
    items.add((REVISIONS, revision), ((REVISIONS, parent),), commit)
    repo.insert_stream(items)
    is_tag = place == "tag"
    name = b"refs/tags/" + command if is_tag else b"refs/heads/" + command if place == "name" else b"refs/heads/main"
    repo.set_refs({name: Ref(revision, b"t" if is_tag else None)}, tags={tag: b"tagger A <a> 1 +0000\n\n"})
    with pytest.raises(BadRecord, match="no such names" if place in {"name", "tag"} else "no commit of git"):
        export_git(repo, io.BytesIO(), Between([revision], [parent]))
