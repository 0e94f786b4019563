"""Archives and aggregation without Spark: every event once, whatever is killed."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import random
import signal
import subprocess
import sys
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import penstock
from penstock import checkpoints
from penstock.errors import BadArgument, CorruptData, JobRunning
from penstock.events import Generator, PollClient, _job_folder, aggregate, archive
from penstock.events._archived_events import ARCHIVE_KIND, CHECKPOINT, ArchivedEvents, ArchiveProgress
from penstock.events._job_folder import JobFolder
from penstock.model import ByConsumption, ByTime, StreamConfig
from penstock.server import Config, Server
from tests.events.wire import call, message_of, websocket
from tests.sampling import EXPLORES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from types import FrameType

    from penstock import Store

STREAM = "shop/orders"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store with two streams, and one to merge them into."""
    with penstock.connect(tmp_path / "store") as store:
        for stream in (STREAM, "shop/other", "shop/all"):
            store.create_stream(stream)
        yield store


def write(store: Store, stream: str, *events: bytes, **attributes: Any) -> None:  # noqa: ANN401
    with store.writer(stream) as writer:
        for event in events:
            writer.write_event(event, **attributes)


def rows_of(table: Path) -> list[dict[str, Any]]:
    found = ds.dataset(table, partitioning="hive", ignore_prefixes=["_", "."]).to_table()
    rows: list[dict[str, Any]] = found.sort_by("offset").to_pylist()
    return rows


def events_of(store: Store, stream: str) -> list[bytes]:
    return [event for batch in store.read(stream) for event in batch["event"].to_pylist()]


def test_archive_has_every_event_once_with_its_attributes(store: Store, tmp_path: Path) -> None:
    """Run after run; large events are files, as in the archives that Spark writes."""
    write(store, STREAM, b"a", key="k", headers={"h": b"1"})
    large = bytes(2 << 20)
    write(store, STREAM, large)
    assert archive.archive(store, STREAM, tmp_path / "t") == (2, 1)
    write(store, STREAM, b"b")
    assert archive.archive(store, STREAM, tmp_path / "t") == (1, 1)
    assert archive.archive(store, STREAM, tmp_path / "t") == (0, 0)
    first, second, third = rows_of(tmp_path / "t")
    assert (first["event"], first["key"], first["headers"], first["file"]) == (b"a", b"k", [("h", b"1")], None)
    assert (first["scope"], first["stream"], first["size"]) == ("shop", "orders", 1)
    assert (second["event"], second["size"]) == (None, 2 << 20)
    assert (tmp_path / "t" / second["file"]).read_bytes() == large
    assert third["event"] == b"b"
    assert store.fetch_event(penstock.EventPointer.parse(third["pointer"])) == b"b"


def test_archive_is_a_consumer_and_may_discard(store: Store, tmp_path: Path) -> None:
    """With it as the last consumer, a stream is as small as what is not archived yet."""
    write(store, STREAM, b"a")
    archive.archive(store, STREAM, tmp_path / "t", discard=True, consumer="archive")
    assert store.stream(STREAM).config.retention == ByConsumption()
    assert store.consumers(STREAM) == {"archive": store.tail(STREAM)}
    store.update_stream(STREAM, StreamConfig(retention=ByTime(60)))
    with pytest.raises(BadArgument, match="is kept ByTime"):
        archive.archive(store, STREAM, tmp_path / "t", discard=True)
    with pytest.raises(BadArgument, match="its name cannot change"):
        archive.archive(store, STREAM, tmp_path / "t", consumer="another")
    with pytest.raises(BadArgument, match="belongs to another job"):
        archive.archive(store, "shop/other", tmp_path / "t")


def test_job_runs_once_at_a_time(store: Store, tmp_path: Path) -> None:
    """Two of them would write the same batch."""
    with (
        JobFolder.held(tmp_path / "t" / "_checkpoint", "archive-local", store, [STREAM]),
        pytest.raises(JobRunning),
    ):
        archive.archive(store, STREAM, tmp_path / "t")


def test_aggregation_copies_events_with_keys_and_headers(store: Store, tmp_path: Path) -> None:
    """In the order of each stream; an event without a key gets the name of its stream."""
    write(store, STREAM, b"a", key="k", headers={"h": b"1"})
    write(store, STREAM, bytes(2 << 20), b"b")
    write(store, "shop/other", b"c")
    merge = (store, [STREAM, "shop/other"], "shop/all")
    assert aggregate.aggregate(*merge, checkpoint=tmp_path / "c") == (4, 1)
    assert aggregate.aggregate(*merge, checkpoint=tmp_path / "c") == (0, 0)
    write(store, "shop/other", b"d")
    assert aggregate.aggregate(*merge, checkpoint=tmp_path / "c") == (1, 1)
    rows = [row for batch in store.read("shop/all") for row in batch.to_pylist()]
    assert [row["event"] for row in rows] == [b"a", None, b"b", b"c", b"d"]
    assert [row["key"] for row in rows] == [b"k", b"shop/orders", b"shop/orders", b"shop/other", b"shop/other"]
    assert rows[0]["headers"] == [("h", b"1")]
    for stream in (STREAM, "shop/other"):
        assert [*store.consumers(stream).values()] == [store.tail(stream)]
    for streams in ([], [STREAM, STREAM], ["shop/all"]):
        with pytest.raises(BadArgument, match="name the streams to merge"):
            aggregate.aggregate(store, streams, "shop/all", checkpoint=tmp_path / "c")


OURS = (archive.__file__, aggregate.__file__, _job_folder.__file__, checkpoints.__file__)
STEPS = ("copy_batch", "_write", "_next", "_register", "_copy_events", "store", "replace_file")


def _run_until(step: int, kind: str, folder: str) -> None:
    """Write an event and run a job, in a process of its own; be killed before a line of its steps that is new."""
    lines = set[tuple[str, int]]()

    def traced(frame: FrameType, event: str, _: object) -> object:
        if frame.f_code.co_filename not in OURS:
            return None
        if event == "line" and frame.f_code.co_name in STEPS:
            lines.add((frame.f_code.co_filename, frame.f_lineno))
            if len(lines) == step:
                os.kill(os.getpid(), signal.SIGKILL)
        return traced

    with penstock.connect(f"{folder}/store") as store:
        write(store, STREAM, b"%d" % step)
        sys.settrace(traced)  # type: ignore[arg-type]
        if kind == "archive":
            archive.archive(store, STREAM, f"{folder}/t")
        else:
            aggregate.aggregate(store, [STREAM], "shop/all", checkpoint=f"{folder}/c")
        sys.settrace(None)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["archive", "aggregate"])
def test_job_that_is_killed_anywhere_copies_each_event_once(store: Store, tmp_path: Path, kind: str) -> None:
    """Between what it writes and what it notes there is always a moment."""
    store.close()
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload([__name__, "penstock.embedded"])
    wanted = []
    for step in count(1, 1 if EXPLORES else 6):
        wanted.append(b"%d" % step)
        process = processes.Process(target=_run_until, args=(step, kind, str(tmp_path)))
        process.start()
        process.join()
        if process.exitcode == 0:
            break
        assert process.exitcode == -signal.SIGKILL
    assert len(wanted) > (20 if EXPLORES else 3)
    with penstock.connect(tmp_path / "store") as again:
        copied = events_of(again, "shop/all")
    assert wanted == ([row["event"] for row in rows_of(tmp_path / "t")] if kind == "archive" else copied)


def test_poll_before_the_head_goes_on_in_the_archive(tmp_path: Path) -> None:
    """History is complete for a consumer that comes late, with the same ids, and without a gap at the head."""
    settings = Config(
        store=str(tmp_path / "data"), futoin_archive=str(tmp_path / "t"), anonymous=True, port=0, http_port=0
    )

    async def add(url: str, numbers: range) -> list[int]:
        async with Generator(url) as generator:
            return await asyncio.gather(*(generator.add_event("A", n) for n in numbers))

    async def poll(url: str) -> list[tuple[int, object]]:
        found: list[tuple[int, object]] = []
        async with PollClient(url, "LIVE") as client:
            while events := await client.poll(found[-1][0] if found else None):
                found += [(int(event.id), event.data) for event in events]
        return found

    with Server(settings) as server:
        url = f"ws://127.0.0.1:{server.http_port}/futoin"
        ids = asyncio.run(add(url, range(2_500)))
        with penstock.connect(f"penstock://127.0.0.1:{server.port}") as store:
            archive.archive(store, "futoin/events", tmp_path / "t" / "futoin" / "events")
            cut = store.tail("futoin/events")
            ids += asyncio.run(add(url, range(2_500, 2_600)))
            archive.archive(store, "futoin/events", tmp_path / "t" / "futoin" / "events")
            store.truncate_stream("futoin/events", cut)
            ids += asyncio.run(add(url, range(2_600, 2_700)))
        assert asyncio.run(poll(url)) == list(zip(ids, range(2_700), strict=True))
        with penstock.connect(f"penstock://127.0.0.1:{server.port}") as store:
            store.truncate_stream("futoin/events", store.tail("futoin/events"))
        assert asyncio.run(poll(url)) == list(zip(ids[:2_600], range(2_600), strict=True))


def test_consumer_that_registers_late_begins_in_the_archive(tmp_path: Path) -> None:
    """The oldest event that is kept is there; and where the consumer is, in the archive, too, survives a restart."""
    settings = Config(
        store=str(tmp_path / "data"), futoin_archive=str(tmp_path / "t"), anonymous=True, port=0, http_port=0
    )
    register = message_of("evt.poll:1.1:registerConsumer", component="late")

    def polled(server: Server, last_id: str | None = None, component: str = "late") -> list[dict[str, Any]]:
        answer = call(server, message_of("evt.poll:1.1:pollEvents", component=component, last_id=last_id))
        events: list[dict[str, Any]] = answer["r"]
        return events

    with Server(settings) as server, penstock.connect(server.address) as store:
        for number in range(4):
            assert "r" in call(server, message_of("evt.gen:1.1:addEvent", type="A", data=number))
        assert "r" in call(server, register | {"p": {"component": "early"}})
        archive.archive(store, "futoin/events", tmp_path / "t" / "futoin" / "events")
        store.truncate_stream("futoin/events", store.tail("futoin/events"))
        assert "r" in call(server, message_of("evt.gen:1.1:addEvent", type="A", data=4))
        assert "r" in call(server, register)
        events = polled(server)
        assert [event["data"] for event in events] == [0, 1, 2, 3, 4]
        assert [event["data"] for event in polled(server, events[1]["id"])] == [2, 3, 4]
        assert polled(server, events[3]["id"], component="early")[0]["data"] == 4
    with Server(settings) as server, penstock.connect(server.address) as store:
        assert [event["data"] for event in polled(server)] == [2, 3, 4]
        assert polled(server, events[3]["id"])[0]["data"] == 4
        with websocket(server) as wire:
            assert "r" in wire.call(register | {"p": {"component": "later"}})
            assert "r" in wire.call(message_of("evt.push:1.1:readyToReceive", component="later"))
            assert [event["data"] for event in wire.pushed()["p"]["events"]] == [0, 1, 2, 3]


def test_archive_of_another_stream_of_the_name_is_not_read(store: Store, tmp_path: Path) -> None:
    """The ids of a stream that was deleted and created again mean other events."""
    archive.archive(store, STREAM, tmp_path / "t")
    uid = store.stream(STREAM).uid
    assert ArchivedEvents.of(tmp_path / "t", STREAM, uid) is not None
    assert ArchivedEvents.of(tmp_path / "t", STREAM, uid + 1) is None
    assert ArchivedEvents.of(tmp_path / "nothing", STREAM, uid) is None


def offsets_in(archived: ArchivedEvents, start: int, end: int) -> list[int]:
    found = archived.between(start, end, events_max=1_000, size_max=1 << 20)
    return [] if found is None else found[0]["offset"].to_pylist()


class _Killed(BaseException):
    """The job ends here."""


def test_batch_that_is_written_again_is_read_as_it_is_then(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A poll that took the footer of a killed attempt for that of the batch would leave events out."""

    def end_here(*_: object) -> None:
        raise _Killed

    table, end = tmp_path / "t", 1 << 40
    write(store, STREAM, b"a")
    with monkeypatch.context() as patched:
        patched.setattr(JobFolder, "store", end_here)
        with pytest.raises(_Killed):
            archive.archive(store, STREAM, table)
    assert list(table.glob("date=*/batch=*/*.parquet")), "the attempt was written, and not noted"
    archived = ArchivedEvents.of(table, STREAM, store.stream(STREAM).uid)
    assert archived is not None
    assert offsets_in(archived, 0, end) == [], "it may be written again"
    write(store, STREAM, b"b")
    archive.archive(store, STREAM, table)
    written = [row["offset"] for row in rows_of(table)]
    assert len(written) == 2
    assert offsets_in(archived, 0, end) == written
    assert offsets_in(archived, written[0] + 1, end) == written[1:]


def test_archive_is_read_in_pages_whatever_the_order_of_its_rows(store: Store, tmp_path: Path) -> None:
    """Spark writes row groups of a million events: a page has the memory of its own events, and leaves none out."""
    write(store, STREAM, *(bytes(10_000 * (number % 3)) for number in range(300)))
    archive.archive(store, STREAM, tmp_path / "t")
    [file] = (tmp_path / "t").glob("date=*/batch=*/*.parquet")
    rows = pq.read_table(file, partitioning=None)
    order = random.Random(1).sample(range(len(rows)), len(rows))
    pq.write_table(rows.take(order), file)
    archived = ArchivedEvents.of(tmp_path / "t", STREAM, store.stream(STREAM).uid)
    assert archived is not None
    offsets, sizes, place = list[int](), list[int](), 0
    while found := archived.between(place, 1 << 40, events_max=20, size_max=100_000):
        table, place = found
        offsets += table["offset"].to_pylist()
        sizes.append(sum(map(len, table["event"].to_pylist())))
        if place == 1 << 40:
            break
    assert offsets == sorted(rows["offset"].to_pylist())
    assert max(sizes) <= 100_000


def test_archive_opens_few_files_however_many_there_are(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Years of history must not make each poll slow, nor the first one after a restart."""
    table, batches = tmp_path / "t", 64
    for number in range(batches):
        write(store, STREAM, b"%d" % number)
        archive.archive(store, STREAM, table)
    offsets = [row["offset"] for row in rows_of(table)]
    opened: list[Path] = []

    def counted(real: Callable[[Path], Any], file: Path) -> Any:  # noqa: ANN401 - as the real one
        opened.append(file)
        return real(file)

    for name in ("read_metadata", "ParquetFile"):
        monkeypatch.setattr(pq, name, partial(counted, getattr(pq, name)))
    archived = ArchivedEvents.of(table, STREAM, store.stream(STREAM).uid)
    assert archived is not None
    found = archived.between(offsets[40], offsets[50], events_max=1, size_max=1 << 20)
    assert found is not None
    assert found[0]["offset"].to_pylist() == offsets[40:41]
    assert found[1] == offsets[41]
    assert len(opened) <= 12, "the last one, a bisection, and those that are returned"
    opened.clear()
    assert archived.between(offsets[41], offsets[50], events_max=1, size_max=1 << 20) is not None
    assert len(opened) <= 6


def test_commands_run_without_spark(store: Store, tmp_path: Path) -> None:
    """Most of those who want an archive have no Java."""
    write(store, STREAM, b"a")
    store.close()
    code = (
        "import sys; sys.modules['pyspark'] = None\n"
        "from penstock.cli import main\n"
        "sys.argv = ['penstock', *sys.argv[1:]]; main()"
    )
    for arguments, title in (
        (["archive", STREAM, "t", "--local"], "shop/orders to t"),
        (["aggregate", STREAM, "shop/other", "--into", "shop/all", "--local"], "shop/orders, shop/other into shop/all"),
    ):
        command = [sys.executable, "-c", code, *arguments, "--store", "store"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, f"{title}: 1 event in 1 batch\n", "")


@pytest.mark.parametrize("columns", [None, {"event": [b"x"]}, {"event": [b"x"], "offset": ["0"]}])
def test_archive_that_is_damaged_names_its_file(tmp_path: Path, columns: dict[str, Any] | None) -> None:
    """An archive has many files, and the operator has to find the one to restore."""
    checkpoint, file = tmp_path / CHECKPOINT, tmp_path / "date=2024-12-31" / "batch=a-1" / "part-0.parquet"
    checkpoint.mkdir()
    record = {"name": "a", "kind": ARCHIVE_KIND, "streams": {STREAM: 7}, "consumer": "a"}
    (checkpoint / "_penstock").write_bytes(msgspec.json.encode(record))
    (checkpoint / "progress").write_bytes(msgspec.json.encode(ArchiveProgress(1, "")))
    file.parent.mkdir(parents=True)
    if columns is None:
        file.write_bytes(b"PAR1 and half a file")
    else:
        pq.write_table(pa.table(columns), file)
    archived = ArchivedEvents.of(tmp_path, STREAM, 7)
    assert archived is not None
    with pytest.raises(CorruptData, match=r"part-0\.parquet is damaged"):
        archived.between(0, 100, events_max=10, size_max=1 << 20)
