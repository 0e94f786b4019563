"""Checks of stores with repositories: every item is read, not only the index."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

import pytest

from penstock.backup import _check_streams, check_folder
from penstock.embedded import open_store
from penstock.repo import REPOSITORY_TAG, TEXTS, Repository
from penstock.repo._block import Item, encode_block
from penstock.repo._events import InsertRecord, encode_insert_record
from tests.backup.harness import files_of
from tests.repo.streams import history

if TYPE_CHECKING:
    from pathlib import Path

    from penstock import Store

NAME: Final = "code/history"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with open_store(tmp_path / "a") as store:
        store.create_stream("plant/readings")
        Repository.open(store, NAME, create=True).insert_stream(history(4))
    return tmp_path / "a"


def forge(store: Store, number: int) -> None:
    """Add texts that are not what their sha1 says; they build on another, so that only a check reads them."""
    basis = (TEXTS, b"file-0", b"r0")
    known = (basis, Repository.open(store, NAME).text(basis))
    wrong = [Item((TEXTS, b"new", b"r%d" % one), (), bytes(20), "fulltext", b"text %d" % one) for one in range(number)]
    base = store.tail(NAME).offsets[0]
    with store.writer(NAME) as writer:
        writer.write_event(encode_block(wrong, basis=[known], depth=1)).result()
        writer.write_event(encode_insert_record(InsertRecord(b"id", base, 1, number, []))).result()


def test_every_item_is_reconstructed_and_nothing_changed(folder: Path) -> None:
    """The checksums of blocks say nothing about a text that was wrong when it was written."""
    before = files_of(folder)
    report = check_folder(folder)
    assert (report.findings, report.unchecked, report.items) == ((), (), 12)
    assert {name for name, data in files_of(folder).items() if before.get(name) != data} <= {"plogs/LOCK"}


def test_an_item_that_is_not_what_its_sha1_says_is_found(folder: Path) -> None:
    """The index lists it, and its block has a good checksum: only its text is wrong."""
    with open_store(folder) as store:
        forge(store, 1)
    (finding,) = check_folder(folder).findings
    assert finding.subject == f"repository {NAME}"
    assert finding.reason.startswith("invalid record of texts/new@r0: its sha1 is ")
    assert "penstock repo pull" in finding.advice


def test_a_history_that_is_wrong_all_over_does_not_fill_the_report(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A report of a million lines is not read."""
    monkeypatch.setattr(_check_streams, "_FAULTS_MAX", 3)
    with open_store(folder) as store:
        forge(store, 5)
    findings = check_folder(folder).findings
    assert len(findings) == 4
    assert findings[-1].reason == f"2 more problems, which penstock repo check {NAME} lists"


def test_without_the_extra_a_repository_is_named_as_not_checked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A check that leaves something out, and says that all is well, is worse than none."""
    assert _check_streams.REPOSITORY_TAG == REPOSITORY_TAG

    class Lacking:
        """Finds no package of the extra."""

        def find_spec(self, name: str, *_: object) -> None:
            """Refuse one name."""
            if name == "penstock.repo":
                raise ModuleNotFoundError("no dulwich", name="dulwich")

    monkeypatch.delitem(sys.modules, "penstock.repo")
    monkeypatch.setattr(sys, "meta_path", [Lacking(), *sys.meta_path])
    report = check_folder(folder)
    assert report.is_good
    assert report.unchecked == (f"repository {NAME}: it needs dulwich, which is part of the extra repo",)
