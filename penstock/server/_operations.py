"""What clients may call, and what each call needs.

An operation is named as the method it calls. The first argument is the stream or the group that it is about; what a
user needs to be permitted is asked for that stream, or for all streams of the group.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from penstock.errors import WriterFenced
from penstock.server import _transactions as transactions
from penstock.server._readers import ClientReader
from penstock.server._session import segment_news
from penstock.server._writers import ClientWriter, Upload

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.server._session import Session
    from penstock.stream._group_state import Key

__all__ = ["OPERATIONS", "Operation", "Permission"]

Permission = Literal["read", "write", "admin"]
About = Literal["stream", "group", "transaction", "pointer", "scope", "open", "store"]


@dataclass(frozen=True, slots=True)
class Operation:
    """What is called, what it needs, and what its first argument says that it is about."""

    run: Callable[..., Any]
    needs: Permission
    about: About = "stream"


def _of_store(name: str) -> Callable[..., Any]:
    return lambda session, *args: getattr(session.store, name)(*args)


def _of_group(name: str) -> Callable[..., Any]:
    return lambda session, group, *args: getattr(session.store.reader_group(group), name)(*args)


def _of_transaction(name: str) -> Callable[..., Any]:
    return lambda session, transaction: getattr(session.store.transaction(transaction), name)()


def _group_value(name: str) -> Callable[..., Any]:
    return lambda session, group: getattr(session.store.reader_group(group), name)


def _create_stream(session: Session, name: str, segments: int | None, config: Any, exist_ok: bool) -> Any:  # noqa: ANN401
    return session.store.create_stream(name, segments, config, exist_ok=exist_ok)


def _create_group(session: Session, name: str, streams: Any, start: Any, end: Any) -> None:  # noqa: ANN401
    session.store.create_reader_group(name, streams, start, end)


def _cut_at_time(session: Session, name: str, time: int, bound: Any) -> Any:  # noqa: ANN401
    return session.store.cut_at_time(name, time, bound=bound)


def _segment(session: Session, stream: str, segment: int) -> Any:  # noqa: ANN401
    try:
        return segment_news(session.store, (stream, segment), session.store.segment(stream, segment))
    except KeyError:
        return None


def _locate(session: Session, stream: str, segment: int, offset: int, end: int) -> Any:  # noqa: ANN401
    try:
        located = session.store.segment(stream, segment).locate(offset, end)
    except KeyError:
        return []
    return [[start, one.path, one.key, one.first, one.offsets] for start, one in located]


def _times(session: Session, stream: str, segment: int, first: int, last: int) -> Any:  # noqa: ANN401
    return list(session.store.mark_times(stream, segment).steps(first, last))


# Readers


def places_of(sent: list[tuple[str, int, int]]) -> dict[Key, int]:
    """Return places by segment."""
    return {(stream, segment): place for stream, segment, place in sent}


def _open_reader(session: Session, group: str, reader_id: str) -> list[Any]:
    reader = session.store.reader_group(group).seat(lambda seat: ClientReader(session, seat, reader_id))
    return [reader.number, list(reader.seat.streams)]


def _look(session: Session, number: int, places: Any, told: str | None, passing: bool) -> Any:  # noqa: ANN401
    return _reader(session, number).look(places_of(places), told, passing=passing)


def _record(session: Session, number: int, places: Any) -> None:  # noqa: ANN401
    reader, found = _reader(session, number), None if places is None else places_of(places)
    reader.hear(found)
    reader.seat.record(found)


def _finish_segment(session: Session, number: int, stream: str, segment: int, place: int) -> None:
    _reader(session, number).seat.finish_segment((stream, segment), place)


def _leave(session: Session, number: int, places: Any) -> None:  # noqa: ANN401
    _reader(session, number).seat.leave(places_of(places))


def _reader(session: Session, number: int) -> ClientReader:
    reader: ClientReader = session.get(number, ClientReader)
    reader.check_online()
    return reader


# Writers


def _open_writer(  # noqa: PLR0917 - as they are sent
    session: Session,
    stream: str,
    writer_id: str | None,
    identity: bytes,
    token: str,
    notes_time: bool,
    resume: bool,
) -> int:
    def make() -> ClientWriter:
        return ClientWriter(session, stream, writer_id, identity, token, notes_time=notes_time)

    if resume:
        older = session.store.known_writer(stream, writer_id)
        if older is not None and getattr(older, "token", None) != token:
            raise WriterFenced(stream, str(writer_id))
    return session.store.admit(stream, writer_id, make).number


def _writer(session: Session, number: int) -> ClientWriter:
    writer: ClientWriter = session.get(number, ClientWriter)
    return writer


def _lanes(session: Session, number: int) -> list[Any]:
    uid, lanes = session.store.lanes(_writer(session, number).stream)
    return [uid, [[lane.segment_id, lane.low] for lane in lanes]]


def _numbers(session: Session, number: int) -> list[int]:
    writer = _writer(session, number)
    return list(session.store.numbers_of(writer.stream, writer.identity))


def _last(session: Session, number: int, segment: int, place: float) -> int:
    writer = _writer(session, number)
    return session.store.segment(writer.stream, segment).last_of(writer.identity, place)


def _find(session: Session, number: int, blocks: list[list[int]]) -> list[int | None]:
    writer = _writer(session, number)
    return [writer.find(segment, last) for segment, last in blocks]


def _open_upload(session: Session, number: int) -> int:
    return session.keep(Upload(session, _writer(session, number)))


def _upload(session: Session, number: int) -> Upload:
    upload: Upload = session.get(number, Upload)
    return upload


def _commit_upload(session: Session, _: int, number: int, size: int, head: bytes, position: float) -> Any:  # noqa: ANN401
    pointer = _upload(session, number).commit(size, head, position)
    session.drop(number)
    return pointer


def _drop_upload(session: Session, _: int, number: int) -> None:
    _upload(session, number).drop()
    session.drop(number)


OPERATIONS: Final[Mapping[str, Operation]] = {
    "create_stream": Operation(_create_stream, "admin"),
    "streams": Operation(_of_store("streams"), "read", "scope"),
    "stream": Operation(_of_store("stream"), "read"),
    "update_stream": Operation(_of_store("update_stream"), "admin"),
    "scale_stream": Operation(_of_store("scale_stream"), "admin"),
    "seal_stream": Operation(_of_store("seal_stream"), "admin"),
    "delete_stream": Operation(_of_store("delete_stream"), "admin"),
    "truncate_stream": Operation(_of_store("truncate_stream"), "admin"),
    "head": Operation(_of_store("head"), "read"),
    "tail": Operation(_of_store("tail"), "read"),
    "segment_ranges": Operation(_of_store("segment_ranges"), "read"),
    "watermarks": Operation(_of_store("watermarks"), "read"),
    "watermark": Operation(_of_store("watermark"), "read"),
    "cut_at_time": Operation(_cut_at_time, "read"),
    "time_window": Operation(_of_store("time_window"), "read", "pointer"),
    "register_consumer": Operation(_of_store("register_consumer"), "read"),
    "unregister_consumer": Operation(_of_store("unregister_consumer"), "read"),
    "maintain": Operation(_of_store("maintain"), "admin", "store"),
    "segment": Operation(_segment, "read"),
    "locate": Operation(_locate, "read"),
    "times": Operation(_times, "read"),
    "reader_groups": Operation(_of_store("reader_groups"), "read", "store"),
    "create_reader_group": Operation(_create_group, "read", "group"),
    "group.check": Operation(lambda session, group: session.store.reader_group(group).name, "read", "group"),
    "group.streams": Operation(_group_value("streams"), "read", "group"),
    "group.position": Operation(_group_value("position"), "read", "group"),
    "group.checkpoints": Operation(_group_value("checkpoints"), "read", "group"),
    "group.finished": Operation(_group_value("finished"), "read", "group"),
    "group.readers": Operation(_of_group("readers"), "read", "group"),
    "group.reader_offline": Operation(_of_group("reader_offline"), "read", "group"),
    "group.checkpoint": Operation(_of_group("checkpoint"), "read", "group"),
    "group.reset": Operation(_of_group("reset"), "read", "group"),
    "group.lag": Operation(_of_group("lag"), "read", "group"),
    "group.delete": Operation(_of_group("delete"), "read", "group"),
    "group.current_time_window": Operation(_of_group("current_time_window"), "read", "group"),
    "reader.open": Operation(_open_reader, "read", "group"),
    "reader.look": Operation(_look, "read", "open"),
    "reader.record": Operation(_record, "read", "open"),
    "reader.finish_segment": Operation(_finish_segment, "read", "open"),
    "reader.leave": Operation(_leave, "read", "open"),
    "writer.open": Operation(_open_writer, "write"),
    "writer.lanes": Operation(_lanes, "write", "open"),
    "writer.numbers": Operation(_numbers, "write", "open"),
    "writer.last": Operation(_last, "write", "open"),
    "writer.find": Operation(_find, "write", "open"),
    "writer.mark": Operation(lambda session, number, time: _writer(session, number).mark(time), "write", "open"),
    "writer.close": Operation(
        lambda session, number, for_good: _writer(session, number).end(for_good=for_good), "write", "open"
    ),
    "transactions.begin": Operation(transactions.begin, "write"),
    "transactions.close": Operation(transactions.close, "write"),
    "transaction.status": Operation(transactions.status, "write", "transaction"),
    "transaction.ping": Operation(_of_transaction("ping"), "write", "transaction"),
    "transaction.abort": Operation(_of_transaction("abort"), "write", "transaction"),
    "transaction.write": Operation(transactions.write, "write", "transaction"),
    "transaction.event": Operation(transactions.begin_event, "write", "transaction"),
    "transaction.chunk": Operation(transactions.write_chunk, "write", "transaction"),
    "transaction.end": Operation(transactions.end_event, "write", "transaction"),
    "transaction.drop": Operation(transactions.drop_event, "write", "transaction"),
    "transaction.commit": Operation(transactions.commit, "write", "transaction"),
    "large.open": Operation(_open_upload, "write", "open"),
    "large.write": Operation(lambda session, _, number, data: _upload(session, number).write(data), "write", "open"),
    "large.commit": Operation(_commit_upload, "write", "open"),
    "large.drop": Operation(_drop_upload, "write", "open"),
}
