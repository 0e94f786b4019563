"""The operations that clients may call, and the permission that each needs.

An operation is named as the method it calls. The first argument is the stream or the group that it is about; what a
user needs is checked for that stream, or for all streams of the group.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from penstock.errors import BadArgument, NoSuchGroup, NoSuchStream, ReaderInUse, WriterFenced
from penstock.model import check_kind, check_name
from penstock.server import _transactions as transactions
from penstock.server._direct_access import end_probe, make_probe
from penstock.server._permissions import check_writer_id
from penstock.server._readers import ClientReader
from penstock.server._session import update_of
from penstock.server._writers import ClientWriter, LargeUpload
from penstock.stream.group import Claim
from penstock.stream.segment import anonymous_hash, writer_hash
from penstock.stream.write import check_writer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.server._session import Session
    from penstock.stream import ReaderGroup
    from penstock.stream.catalog import Key

__all__ = ["OPERATIONS", "Operation", "Permission"]

Permission = Literal["read", "write", "admin"]
About = Literal["stream", "streams", "group", "transaction", "pointer", "open", "store", "chosen"]
"""The first argument names a stream, a group, a transaction, an event, or something open; the second names streams;
the call is about the whole store; or nothing is checked: the answer is filtered, or something is only closed."""


@dataclass(frozen=True, slots=True)
class Operation:
    """The function to call, the permission it needs, and what its first argument names."""

    run: Callable[..., Any]
    needs: Permission
    about: About = "stream"


def _of_store(name: str) -> Callable[..., Any]:
    return lambda session, *args: getattr(session.store, name)(*args)


def _register_consumer(session: Session, *args: Any) -> None:  # noqa: ANN401 - the store checks them
    *place, lease_s = args
    session.store.register_consumer(*place, lease_s=lease_s)


def _of_group(name: str) -> Callable[..., Any]:
    return lambda session, group, *args: getattr(session.store.reader_group(group), name)(*args)


def _of_transaction(name: str) -> Callable[..., Any]:
    return lambda session, transaction: getattr(session.store.transactions.get(transaction), name)()


def _group_value(name: str) -> Callable[..., Any]:
    return lambda session, group: getattr(session.store.reader_group(group), name)


def _streams(session: Session, scope: str | None) -> list[Any]:
    return [info for info in session.store.streams(scope) if session.principal.may("read", info.name)]


def _groups(session: Session) -> list[str]:
    return [name for name in session.store.reader_groups() if _may_read(session, name)]


def _may_read(session: Session, group: str) -> bool:
    return all(session.principal.may("read", stream) for stream in session.store.reader_group(group).streams)


def _create_stream(session: Session, name: str, segments: int | None, config: Any, exist_ok: bool) -> Any:  # noqa: ANN401
    return session.store.create_stream(name, segments, config, exist_ok=exist_ok)


def _create_group(session: Session, name: str, streams: Any, start: Any, end: Any, exist_ok: bool) -> None:  # noqa: ANN401, PLR0917
    session.store.create_reader_group(name, streams, start, end, exist_ok=exist_ok)


def _cut_at_time(session: Session, name: str, time: int, bound: Any, by: Any) -> Any:  # noqa: ANN401
    return session.store.cut_at_time(name, time, bound=bound, by=by)


def _next_cut(session: Session, name: str, start: Any, end: Any, *limits: Any) -> Any:  # noqa: ANN401
    size, events, align, skip = limits
    return session.store.next_cut(name, start, end, max_bytes=size, max_events=events, align=align, skip_truncated=skip)


def _segment_at(session: Session, pointer: Any) -> Any:  # noqa: ANN401
    segment = session.store.cuts.segment_at(pointer)
    return update_of(session.store.catalog.stream(pointer.stream), pointer.segment_id, segment)


def _locate(session: Session, stream: str, segment: int, offset: int, end: int) -> Any:  # noqa: ANN401
    try:
        located = session.store.segments.get(stream, segment).locate(offset, end)
        return [[start, commit_ms, one.path, one.key, one.first, one.offsets] for start, commit_ms, one in located]
    except (KeyError, NoSuchStream):
        return []


def _times(session: Session, stream: str, segment: int, first: int, last: int) -> Any:  # noqa: ANN401
    return list(session.store.reads.times(stream, segment).steps(first, last))


class _CheckpointWait:
    """A client that waits for a checkpoint."""

    def __init__(self, group: ReaderGroup, name: str) -> None:
        self._group, self._name = group, name

    def abandon(self) -> None:
        """End the wait: the client is gone."""
        self._group.drop_checkpoint(self._name)


def _checkpoint(session: Session, group: str, name: str, timeout: float | None) -> Any:  # noqa: ANN401
    found = session.store.reader_group(group)
    number = session.keep(_CheckpointWait(found, name))
    try:
        return found.checkpoint(name, timeout)
    finally:
        session.drop(number)


# Readers


def places_of(sent: list[tuple[str, int, int]]) -> dict[Key, int]:
    """Return places by segment."""
    return {(stream, segment): place for stream, segment, place in sent}


def _open_reader(
    session: Session,
    group: str,
    reader_id: str,
    epoch: int | None = None,
    places: Any = (),  # noqa: ANN401
) -> list[Any]:
    """Open a reader; one that reconnects sends the epoch of its group, and where it was."""
    check_name("reader", reader_id)
    store = session.store
    claim = None if epoch is None else Claim(epoch, places_of(places))
    try:
        reader = store.reader_group(group).join(lambda membership: ClientReader(session, membership, reader_id), claim)
    except ReaderInUse:
        coordinator = store.groups.at_work.get(group)
        older = None if coordinator is None else coordinator.readers.get(reader_id)
        if not (isinstance(older, ClientReader) and older.end_if_left_behind()):
            raise
        return _open_reader(session, group, reader_id, epoch, places)
    return [reader.open(), list(reader.membership.streams), reader.membership.epoch]


def _sync(session: Session, number: int, places: Any, told: str | None, passing: bool) -> Any:  # noqa: ANN401
    return _reader(session, number).sync(places_of(places), told, passing=passing)


def _record(session: Session, number: int, places: Any, durable: bool) -> None:  # noqa: ANN401
    reader, found = _reader(session, number), None if places is None else places_of(places)
    reader.note_seen(found)
    reader.membership.record(found, durable=durable)


def _is_finished(session: Session, group: str) -> bool:
    try:
        return session.store.reader_group(group).finished
    except NoSuchGroup:
        return False  # its readers are stopped with an error


def _note_places(session: Session, number: int, places: Any, returned: Any) -> None:  # noqa: ANN401
    reader = _reader(session, number)
    reader.note_seen(places_of(places), places_of(returned))
    reader.membership.record(None)  # takes silent readers of the group offline; the store records places by itself


def _finish_segment(session: Session, number: int, stream: str, segment: int, place: int) -> None:
    reader, key = _reader(session, number), (stream, segment)
    reader.note_seen(reader.places(returned=False) | {key: place}, reader.places(returned=True) | {key: place})
    reader.membership.finish_segment(key, place)


def _note_told(session: Session, number: int, stream: str, segments: list[int]) -> None:
    _reader(session, number).membership.note_told(stream, segments)


def _leave(session: Session, number: int, places: Any) -> None:  # noqa: ANN401
    reader, found = _reader(session, number), places_of(places)
    reader.note_seen(found)
    reader.membership.leave(found)


def _reader(session: Session, number: int) -> ClientReader:
    reader: ClientReader = session.get(number, ClientReader)
    return reader


# Writers


def _open_writer(  # noqa: PLR0917 - as they are sent
    session: Session,
    stream: str,
    writer_id: str | None,
    token: str,
    notes_time: bool,
    sent: int | None,
) -> list[Any]:
    """Open a writer; one that reconnects sends the highest number it has ``sent``: higher ones are of another.

    Only the client knows its ``token``, which is what a writer without an id is recognised by.
    """
    check_writer(writer_id, None)
    check_kind("token", token, str)
    check_writer_id(session, stream, writer_id)
    identity = anonymous_hash(token) if writer_id is None else writer_hash(writer_id)
    found: list[Any] = []

    def make() -> ClientWriter:
        uid, lanes, keeps_keys = session.store.host.lanes(stream)
        numbers = [] if writer_id is None else session.store.host.numbers_of(stream, identity)
        if sent is not None and numbers and numbers[1] > sent:
            raise WriterFenced(stream, str(writer_id))
        found[:] = [uid, [[lane.segment_id, lane.low] for lane in lanes], keeps_keys, numbers]
        return ClientWriter(session, stream, writer_id, identity, token, notes_time=notes_time)

    if sent is not None:
        older = session.store.writers.get(stream, writer_id)
        if older is not None and getattr(older, "token", None) != token:
            raise WriterFenced(stream, str(writer_id))
    writer = session.store.writers.admit(stream, writer_id, make)
    if session.is_over:
        writer.abandon()  # the session may have ended before the store knew the writer
    return [writer.number, *found]


def _writer(session: Session, number: int) -> ClientWriter:
    writer: ClientWriter = session.get(number, ClientWriter)
    writer.check()
    return writer


def _close_writer(session: Session, number: int, for_good: bool) -> None:
    session.get(number, ClientWriter).end(for_good=for_good)


def _lanes(session: Session, number: int) -> list[Any]:
    uid, lanes, keeps_keys = session.store.host.lanes(_writer(session, number).stream)
    return [uid, [[lane.segment_id, lane.low] for lane in lanes], keeps_keys]


def _last(session: Session, number: int, segment: int, place: float) -> int:
    writer = _writer(session, number)
    return session.store.segments.get(writer.stream, segment).last_of(writer.identity, place)


def _find(session: Session, number: int, blocks: list[list[Any]]) -> list[int | None]:
    writer = _writer(session, number)
    return [writer.find(*block) for block in blocks]


def _open_upload(session: Session, number: int) -> int:
    return session.keep(LargeUpload(session, _writer(session, number)))


def _upload(session: Session, writer: int, number: int) -> LargeUpload:
    """Return a large event of a writer: a permission for one writer holds for no other."""
    upload: LargeUpload = session.get(number, LargeUpload)
    if upload.writer.number != writer:
        raise BadArgument(f"{number} is not a large event of writer {writer}")
    return upload


def _write_upload(session: Session, writer: int, number: int, data: bytes) -> None:
    _upload(session, writer, number).write(data)


def _commit_upload(  # noqa: PLR0917 - as they are sent
    session: Session, writer: int, number: int, size: int, head: bytes, columns: bytes, position: float
) -> Any:  # noqa: ANN401
    pointer = _upload(session, writer, number).commit(size, head, columns, position)
    session.drop(number)
    return pointer


def _drop_upload(session: Session, writer: int, number: int) -> None:
    _upload(session, writer, number).drop()
    session.drop(number)


OPERATIONS: Final[Mapping[str, Operation]] = {
    "create_stream": Operation(_create_stream, "admin"),
    "streams": Operation(_streams, "read", "chosen"),
    "stream": Operation(_of_store("stream"), "read"),
    "update_stream": Operation(_of_store("update_stream"), "admin"),
    "scale_stream": Operation(_of_store("scale_stream"), "admin"),
    "seal_stream": Operation(_of_store("seal_stream"), "admin"),
    "delete_stream": Operation(_of_store("delete_stream"), "admin"),
    "truncate_stream": Operation(_of_store("truncate_stream"), "admin"),
    "head": Operation(_of_store("head"), "read"),
    "tail": Operation(_of_store("tail"), "read"),
    "segment_ranges": Operation(_of_store("segment_ranges"), "read"),
    "next_cut": Operation(_next_cut, "read"),
    "watermarks": Operation(_of_store("watermarks"), "read"),
    "watermark": Operation(_of_store("watermark"), "read"),
    "cut_at_time": Operation(_cut_at_time, "read"),
    "time_window": Operation(_of_store("time_window"), "read", "pointer"),
    "register_consumer": Operation(_register_consumer, "read"),
    "consumers": Operation(_of_store("consumers"), "read"),
    "unregister_consumer": Operation(_of_store("unregister_consumer"), "read"),
    "maintain": Operation(_of_store("maintain"), "admin", "store"),
    "segment_at": Operation(_segment_at, "read", "pointer"),
    "watch": Operation(lambda session, *key: session.watch(key), "read"),
    "unwatch": Operation(lambda session, *key: session.unwatch(key), "read"),
    "access.probe": Operation(make_probe, "read"),
    "access.end": Operation(end_probe, "read", "chosen"),
    "locate": Operation(_locate, "read"),
    "times": Operation(_times, "read"),
    "reader_groups": Operation(_groups, "read", "chosen"),
    "create_reader_group": Operation(_create_group, "read", "streams"),
    "group.check": Operation(lambda session, group: session.store.reader_group(group).name, "read", "group"),
    "group.streams": Operation(_group_value("streams"), "read", "group"),
    "group.position": Operation(_group_value("position"), "read", "group"),
    "group.checkpoints": Operation(_group_value("checkpoints"), "read", "group"),
    "group.finished": Operation(_group_value("finished"), "read", "group"),
    "group.readers": Operation(_of_group("readers"), "read", "group"),
    "group.reader_offline": Operation(_of_group("reader_offline"), "read", "group"),
    "group.checkpoint": Operation(_checkpoint, "read", "group"),
    "group.reset": Operation(_of_group("reset"), "read", "group"),
    "group.lag": Operation(_of_group("lag"), "read", "group"),
    "group.delete": Operation(_of_group("delete"), "read", "group"),
    "group.current_time_window": Operation(_of_group("current_time_window"), "read", "group"),
    "reader.open": Operation(_open_reader, "read", "group"),
    "reader.sync": Operation(_sync, "read", "open"),
    "reader.finished": Operation(_is_finished, "read", "group"),
    "reader.places": Operation(_note_places, "read", "open"),
    "reader.record": Operation(_record, "read", "open"),
    "reader.finish_segment": Operation(_finish_segment, "read", "open"),
    "reader.note_told": Operation(_note_told, "read", "open"),
    "reader.leave": Operation(_leave, "read", "chosen"),
    "writer.open": Operation(_open_writer, "write"),
    "writer.lanes": Operation(_lanes, "write", "open"),
    "writer.last": Operation(_last, "write", "open"),
    "writer.find": Operation(_find, "write", "open"),
    "writer.mark": Operation(lambda session, number, time: _writer(session, number).mark(time), "write", "open"),
    "writer.close": Operation(_close_writer, "write", "chosen"),
    "transactions.open": Operation(transactions.open_writer, "write"),
    "transactions.begin": Operation(transactions.begin, "write"),
    "transactions.close": Operation(transactions.close, "write"),
    "transactions.commit_all": Operation(transactions.commit_all, "write"),
    "transactions.last_number": Operation(transactions.last_number, "write"),
    "transaction.status": Operation(transactions.status, "write", "transaction"),
    "transaction.ping": Operation(_of_transaction("ping"), "write", "transaction"),
    "transaction.abort": Operation(transactions.abort, "write", "transaction"),
    "transaction.write": Operation(transactions.write, "write", "transaction"),
    "transaction.batch": Operation(transactions.write_batch, "write", "transaction"),
    "transaction.prepare": Operation(_of_transaction("prepare"), "write", "transaction"),
    "transaction.event": Operation(transactions.begin_event, "write", "transaction"),
    "transaction.chunk": Operation(transactions.write_chunk, "write", "transaction"),
    "transaction.end": Operation(transactions.end_event, "write", "transaction"),
    "transaction.drop": Operation(transactions.drop_event, "write", "transaction"),
    "transaction.commit": Operation(transactions.commit, "write", "transaction"),
    "large.open": Operation(_open_upload, "write", "open"),
    "large.write": Operation(_write_upload, "write", "open"),
    "large.commit": Operation(_commit_upload, "write", "open"),
    "large.drop": Operation(_drop_upload, "write", "open"),
}
