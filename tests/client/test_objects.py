"""A client that was given the bucket reads objects itself: the server says where they are, and sends no event."""

from __future__ import annotations

import os
import re
import signal
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import pytest

import penstock
from penstock.client import _objects
from penstock.client._connection import Channel
from penstock.errors import BadArgument, StorageUnusable
from penstock.ports import Bucket
from penstock.server import Server
from penstock.wire.operations import streams
from tests.server.apart import eventually, suspend
from tests.server.cluster import Servers, config_of, sent_bytes, status_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penstock.wire.operations import Operation

STREAM: Final = "plant/readings"
EVENTS: Final = [b"%06d" % number + bytes(1000) for number in range(6000)]


@pytest.fixture(autouse=True)
def temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Copies of objects go below the folder of the test."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path / f"penstock-cache-{os.geteuid()}"


@pytest.fixture
def server(tmp_path: Path, s3_address: str) -> Iterator[Server]:
    with Server(config_of(tmp_path, "a", plogs=s3_address)) as server:
        eventually(lambda: status_of(server.http_port) == "ok")
        with penstock.connect(server.address) as store:
            fill(store)
        yield server


def fill(store: penstock.Store) -> None:
    """Write large batches, which get objects of their own, and small ones, which share objects."""
    store.create_stream(STREAM)
    with store.writer(STREAM) as writer:
        writer.write_batch(EVENTS[:5900], keys="k")
        for number in range(5900, 6000, 25):
            writer.write_batch(EVENTS[number : number + 25], keys="k")
            writer.flush()


def events_of(store: penstock.Store) -> list[bytes]:
    return [event for batch in store.read(STREAM) for event in batch["event"].to_pylist()]


def test_the_server_sends_no_byte_of_events(server: Server, s3_address: str, temporary_folder: Path) -> None:
    """The owner would be the bottleneck of all readers; and what was read once is on the local disk."""
    with penstock.connect(server.address) as store:
        assert events_of(store) == EVENTS
    sent = sent_bytes(server.http_port)
    assert sent > sum(map(len, EVENTS))
    for _ in range(2):
        with penstock.connect(server.address, plogs=s3_address) as store:
            assert events_of(store) == EVENTS
    assert sent_bytes(server.http_port) == sent
    assert [path.name for path in temporary_folder.iterdir()] == ["0"], "the second process took the first's copies"
    assert sum(path.stat().st_size for path in temporary_folder.rglob("*.chunks")) > sum(map(len, EVENTS))


def test_what_was_located_is_read_while_the_owner_is_stopped(tmp_path: Path, s3_address: str) -> None:
    """A long pause of the owner is none for those that read what was written long before."""
    with Servers(tmp_path, 1, plogs=s3_address) as servers:
        servers.owner()
        with penstock.connect(servers.address, plogs=s3_address) as store:
            fill(store)
            batches = store.read(STREAM)
            read = next(batches)["event"].to_pylist()
            suspend(servers.processes[0].pid)
            assert len(read) < len(EVENTS)
            assert read + [event for batch in batches for event in batch["event"].to_pylist()] == EVENTS
            servers.processes[0].send_signal(signal.SIGCONT)


def changed_answers(monkeypatch: pytest.MonkeyPatch, change: Callable[[list[Any]], list[Any]]) -> None:
    """Let the server locate blocks elsewhere."""
    call = Channel.call

    def changed(channel: Channel, made: Operation) -> Any:  # noqa: ANN401 - as the operation says
        answer = call(channel, made)
        return list(map(change, answer)) if isinstance(made, streams.Locate) else answer

    monkeypatch.setattr(Channel, "call", changed)


def renamed(name: str) -> Callable[[list[Any]], list[Any]]:
    return lambda row: [*row[:-1], [[name, *rest] for _, *rest in row[-1]]]


HOSTILE: Final[dict[str, Callable[[list[Any]], list[Any]]]] = {
    "the checkpoint": renamed("checkpoint"),
    "another prefix": renamed("../other/journal/00000000000000000001"),
    "a journal's neighbour": renamed("journal/00000000000000000001x"),
    "another plog": renamed(f"plogs/{'0' * 32}.{'0' * 16}/1.plog"),
    "an address": renamed("http://127.0.0.1:1/journal/00000000000000000001"),
    "a hole": lambda row: [*row[:-1], [[name, at, start + 1, size - 1] for name, at, start, size in row[-1]]],
    "too much": lambda row: [*row[:-1], [[name, at, start, 1 << 47] for name, at, start, _ in row[-1]]],
    "not extents": lambda row: [*row[:-1], [["journal/00000000000000000001", -1, None, 2.5]]],
    "no objects": lambda row: [*row[:-1], []],
    "other places": lambda row: [*row[:-1], [[name, at + 1, start, size] for name, at, start, size in row[-1]]],
}


def test_a_server_leads_to_no_other_object_and_no_other_bucket(
    server: Server, s3_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client has credentials that the server may not have; events that are not proven are sent instead."""
    names: list[str] = []
    get_range = Bucket.get_range

    def noted(bucket: Bucket, name: str, *args: int) -> memoryview:
        names.append(name)
        return get_range(bucket, name, *args)

    monkeypatch.setattr(Bucket, "get_range", noted)
    for case, change in HOSTILE.items():
        with monkeypatch.context() as patch, penstock.connect(server.address, plogs=s3_address) as store:
            changed_answers(patch, change)
            names.clear()
            assert events_of(store) == EVENTS, case
            read = Counter(name for name in names if not re.match(r"journal/\d{20}$|plogs/[0-9a-f]{32}\.", name))
            assert not read, case


def test_objects_that_were_deleted_meanwhile_are_asked_for_anew(
    server: Server, s3_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compaction moves blocks and deletes where they were: a reader that knows the old place must not fail."""
    stale = [renamed("journal/99999999999999999999")]

    def once(row: list[Any]) -> list[Any]:
        return stale.pop()(row) if stale else row

    changed_answers(monkeypatch, once)
    sent = sent_bytes(server.http_port)
    with penstock.connect(server.address, plogs=s3_address) as store:
        assert events_of(store) == EVENTS
    assert sent_bytes(server.http_port) == sent
    assert not stale


def test_a_server_that_names_objects_that_are_gone_is_not_believed_until_there_is_another(
    server: Server, s3_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was replaced does that until it notices; its successor would send everything for ever."""
    with monkeypatch.context() as patch, penstock.connect(server.address, plogs=s3_address) as store:
        changed_answers(patch, renamed("journal/99999999999999999999"))
        assert events_of(store) == EVENTS
        sent = sent_bytes(server.http_port)
        assert sent > 0
        patch.undo()
        assert events_of(store) == EVENTS
        assert sent_bytes(server.http_port) > sent, "the server is still the same"
        sent = sent_bytes(server.http_port)
        store.connection.channel.is_lost = True  # type: ignore[attr-defined]
        assert events_of(store) == EVENTS
        assert sent_bytes(server.http_port) == sent


def test_a_bucket_that_is_wrong_is_an_error_at_once(
    server: Server, s3_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Later it would be a slow read that nobody understands. A secret is in no message."""
    with pytest.raises(BadArgument, match=r"no store at s3://.*: name the plogs"):
        penstock.connect(server.address, plogs=f"{s3_address}-other")
    with pytest.raises(StorageUnusable) as failed:
        penstock.connect(server.address, plogs=s3_address, plogs_options={"secret_access_key": "hidden"})
    assert "hidden" not in str(failed.value)
    with pytest.raises(BadArgument, match="plogs_options are those of a bucket"):
        penstock.connect(server.address, plogs_options={})
    with pytest.raises(BadArgument, match="plogs has no meaning for a folder"):
        penstock.connect("somewhere", plogs=s3_address)
    secret = os.environ["AWS_SECRET_ACCESS_KEY"]
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with penstock.connect(server.address, plogs=s3_address, plogs_options={"secret_access_key": secret}) as store:
        assert events_of(store) == EVENTS


def test_a_folder_of_copies_belongs_to_one_process_and_one_user(
    tmp_path: Path, temporary_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another user could make a file shorter while it is mapped, which would end this process."""
    first = _objects._free_folder()
    assert first == temporary_folder / "0"
    assert temporary_folder.stat().st_mode & 0o077 == 0
    temporary_folder.chmod(0o777)
    assert _objects._free_folder() is None
    other = tmp_path / "other"
    other.mkdir()
    temporary_folder.rename(tmp_path / "moved")
    temporary_folder.symlink_to(other)
    assert _objects._free_folder() is None
    assert not list(other.iterdir())
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    assert _objects._free_folder() is None
