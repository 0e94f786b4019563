"""Archives as Iceberg tables: every event once, whatever is killed."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

import penstock
from penstock.errors import BadArgument, JobRunning
from penstock.events import _iceberg, archive
from penstock.events._job_folder import JobFolder
from penstock.model import Watermark
from tests.sampling import EXPLORES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import FrameType

    from pyiceberg.table import Table

    from penstock import Store
    from penstock.events.archive import Copied

STREAM = "shop/orders"
NOON = 1_790_000_000_000  # 2026-09-21


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with penstock.connect(tmp_path / "store") as store:
        store.create_stream(STREAM)
        yield store


def write(store: Store, *events: bytes, **attributes: Any) -> None:  # noqa: ANN401
    with store.writer(STREAM) as writer:
        for event in events:
            writer.write_event(event, **attributes)


def copy(store: Store, folder: Path, **options: Any) -> Copied:  # noqa: ANN401
    return archive.archive(store, STREAM, folder, table_format="iceberg", **options)


def table_in(folder: Path, *, catalog: str | None = None) -> Table:
    uri = catalog or f"sqlite:///{folder}/catalog.db"
    return SqlCatalog("penstock", uri=uri).load_table(STREAM.replace("/", "."))


def rows_in(folder: Path, **options: Any) -> list[dict[str, Any]]:  # noqa: ANN401
    rows: list[dict[str, Any]] = table_in(folder, **options).scan().to_arrow().sort_by("offset").to_pylist()
    return rows


def test_the_table_has_every_event_once_with_its_attributes(store: Store, tmp_path: Path) -> None:
    """Run after run, in a table that any engine of Iceberg reads; large events are files, as in other archives."""
    write(store, b"a", key="k", headers={"h": b"1"})
    store.add_watermarks(STREAM, [Watermark(NOON, NOON, store.tail(STREAM))])
    large = bytes(2 << 20)
    write(store, large)
    assert copy(store, tmp_path / "t") == (2, 1)
    write(store, b"b")
    assert copy(store, tmp_path / "t") == (1, 1)
    assert copy(store, tmp_path / "t") == (0, 0)
    first, second, third = rows_in(tmp_path / "t")
    assert (first["event"], first["key"], first["headers"], first["file"]) == (b"a", b"k", [("h", b"1")], None)
    assert (second["event"], second["size"], third["event"]) == (None, 2 << 20, b"b")
    assert (tmp_path / "t" / second["file"]).read_bytes() == large
    assert second["date"].isoformat() == "2026-09-21", "the day of the watermark"
    assert store.consumers(STREAM) == {next(iter(store.consumers(STREAM))): store.tail(STREAM)}
    assert [field.name for field in table_in(tmp_path / "t").spec().fields] == ["date"]


def test_a_catalog_of_ones_own_names_the_table(store: Store, tmp_path: Path) -> None:
    """People have one catalog for all tables; a table there that is not ours stays as it is."""
    catalog = f"sqlite:///{tmp_path}/mine.db"
    write(store, b"a")
    copy(store, tmp_path / "t", catalog=catalog)
    assert len(rows_in(tmp_path / "t", catalog=catalog)) == 1
    with pytest.raises(BadArgument, match="not of this archive"):
        copy(store, tmp_path / "other", catalog=catalog)
    assert len(rows_in(tmp_path / "t", catalog=catalog)) == 1


def test_wrong_options_and_folders_of_other_jobs_are_refused(store: Store, tmp_path: Path) -> None:
    """A Parquet archive that goes on as an Iceberg table would have a gap."""
    archive.archive(store, STREAM, tmp_path / "parquet")
    with pytest.raises(BadArgument, match="belongs to another job"):
        copy(store, tmp_path / "parquet")
    for catalog in ("nonsense", "nonsense://x", f"sqlite:///{tmp_path}/no/such/folder.db"):
        with pytest.raises(BadArgument, match="catalog"):
            copy(store, tmp_path / "t", catalog=catalog)
    with pytest.raises(BadArgument, match="table_format"):
        archive.archive(store, STREAM, tmp_path / "t", table_format="csv")  # type: ignore[arg-type]
    with pytest.raises(BadArgument, match="only an Iceberg table"):
        archive.archive(store, STREAM, tmp_path / "t", catalog="sqlite://")
    held = JobFolder.held(tmp_path / "t" / "_checkpoint", "archive-iceberg", store, [STREAM])
    with held, pytest.raises(JobRunning):
        copy(store, tmp_path / "t")


def test_without_pyiceberg_the_error_says_what_to_install(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is an extra; nothing is left behind that a later run with it would stumble over."""
    monkeypatch.setitem(sys.modules, "pyiceberg.catalog.sql", None)
    with pytest.raises(BadArgument, match=r"penstock-stream\[iceberg\]"):
        copy(store, tmp_path / "t")
    assert not (tmp_path / "t").exists()


def _run_until(step: int, folder: str) -> None:
    """Write an event and archive it, in a process of its own; be killed before a line of the job that is new."""
    lines = set[int]()

    def traced(frame: FrameType, event: str, _: object) -> object:
        if frame.f_code.co_filename != _iceberg.__file__:
            return None
        if event == "line" and frame.f_code.co_name in ("copy_batch", "begin", "__init__"):
            lines.add(frame.f_lineno)
            if len(lines) == step:
                os.kill(os.getpid(), signal.SIGKILL)
        return traced

    with penstock.connect(f"{folder}/store") as store:
        write(store, b"%d" % step)
        sys.settrace(traced)  # type: ignore[arg-type]
        archive.archive(store, STREAM, f"{folder}/t", table_format="iceberg")
        sys.settrace(None)


@pytest.mark.long
def test_an_archive_that_is_killed_anywhere_has_each_event_once(store: Store, tmp_path: Path) -> None:
    """The rows and the cut behind them are one commit; between it and the store there is always a moment."""
    store.close()
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload([__name__, "penstock.embedded", "pyiceberg.catalog.sql", "pyiceberg.io.pyarrow"])
    wanted = []
    for step in count(1, 1 if EXPLORES else 4):
        wanted.append(b"%d" % step)
        process = processes.Process(target=_run_until, args=(step, str(tmp_path)))
        process.start()
        process.join()
        if process.exitcode == 0:
            break
        assert process.exitcode == -signal.SIGKILL
    assert len(wanted) > (12 if EXPLORES else 4)
    assert [row["event"] for row in rows_in(tmp_path / "t")] == wanted
