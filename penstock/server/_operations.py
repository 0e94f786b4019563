"""How the operations that clients may call are carried out; :mod:`penstock.wire.operations` describes them.

A handler gets arguments that were checked, and is called only if the user has the permission that the operation needs.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Concatenate, Final

from penstock.errors import BadArgument, NoSuchStream, ReaderInUse, WriterFenced
from penstock.events.consumers import user_of_consumer
from penstock.model import Watermark, check_name
from penstock.server import _overviews, _snapshots, _transactions
from penstock.server._cluster_status import send_members
from penstock.server._direct_access import end_probe, make_probe
from penstock.server._owners import check_consumer, check_group, check_new_reader, check_writer_id
from penstock.server._permissions import may_see
from penstock.server._readers import ClientReader
from penstock.server._session import update_of
from penstock.server._writers import ClientWriter, LargeUpload
from penstock.stream.group import Claim
from penstock.stream.segment import anonymous_hash, writer_hash
from penstock.stream.write import check_writer
from penstock.wire import LOCATE_MAX
from penstock.wire.operations import (
    Operation,
    clusters,
    groups,
    overviews,
    readers,
    snapshots,
    streams,
    transactions,
    writers,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.server._session import Session
    from penstock.stream import LocalReaderGroup
    from penstock.stream.catalog import Key
    from penstock.stream.group import Groups

__all__ = ["HANDLERS"]


def _register_consumer(session: Session, stream: str, consumer: str, cut: Any, lease_s: float | None) -> None:  # noqa: ANN401
    admit = partial(check_consumer, session, stream, consumer, streams.RegisterConsumer.operation, claims=True)
    user = session.owner and (user_of_consumer(consumer) or session.owner)
    session.store.registered.register(stream, consumer, cut, lease_s=lease_s, user=user, admit=admit)


def _unregister_consumer(session: Session, stream: str, consumer: str) -> None:
    with session.store.catalog.lock:
        check_consumer(session, stream, consumer, streams.UnregisterConsumer.operation, claims=False)
        session.store.unregister_consumer(stream, consumer)


def _own_group(session: Session, operation: type[Operation], group: str) -> LocalReaderGroup:
    """Return a group that is changed only if it is the user's."""
    return session.store.groups.get(group, partial(check_group, session, operation.operation))


def _streams(session: Session, scope: str | None) -> list[Any]:
    return list(session.store.selected_streams(partial(session.principal.may, "read"), scope))


def _groups(session: Session) -> list[str]:
    with session.store.catalog.lock:
        groups = [session.store.catalog.groups[name] for name in session.store.reader_groups()]
    return [group.name for group in groups if may_see(session.principal, group)]


def _create_stream(session: Session, name: str, segments: int | None, config: Any, exist_ok: bool) -> Any:  # noqa: ANN401
    return session.store.stream_changes.create(name, segments, config, exist_ok=exist_ok, owner=session.owner)


def _create_group(session: Session, name: str, streams: Any, start: Any, end: Any, exist_ok: bool) -> None:  # noqa: ANN401, PLR0917
    session.store.groups.create(name, streams, start, end, exist_ok=exist_ok, owner=session.owner)


def _cut_at_time(session: Session, name: str, time: int, bound: Any, by: Any) -> Any:  # noqa: ANN401
    return session.store.cut_at_time(name, time, bound=bound, by=by)


def _add_watermarks(session: Session, name: str, lower: list[int], upper: list[int], cuts: list[Any]) -> None:
    if not len(lower) == len(upper) == len(cuts):
        raise BadArgument("invalid watermarks: give as many times as cuts")
    session.store.add_watermarks(name, list(map(Watermark, lower, upper, cuts)))


def _next_cut(session: Session, name: str, start: Any, end: Any, *limits: Any) -> Any:  # noqa: ANN401
    size, events, align, skip = limits
    return session.store.next_cut(name, start, end, max_bytes=size, max_events=events, align=align, skip_truncated=skip)


def _segment_at(session: Session, pointer: Any) -> Any:  # noqa: ANN401
    segment = session.store.cuts.segment_at(pointer)
    return update_of(session.store.catalog.stream(pointer.stream), pointer.segment_id, segment)


def _locate(session: Session, stream: str, segment: int, offset: int, end: int) -> Any:  # noqa: ANN401
    try:
        located = session.store.segments.get(stream, segment).locate(offset, min(end, offset + LOCATE_MAX))
        return [
            [start, commit_ms, location.path, location.key, location.first, location.offsets, location.extents]
            for start, commit_ms, location in located
        ]
    except (KeyError, NoSuchStream):
        return []


def _times(session: Session, stream: str, segment: int, first: int, last: int) -> Any:  # noqa: ANN401
    return list(session.store.reads.times(stream, segment).steps(first, last))


class _CheckpointWait:
    """A client that waits for a checkpoint."""

    def __init__(self, groups: Groups, group: str, name: str) -> None:
        self._groups, self._group, self._name = groups, group, name

    def abandon(self) -> None:
        """End the wait: the client is gone."""
        self._groups.drop_checkpoint(self._group, self._name)


def _checkpoint(session: Session, group: str, name: str, timeout: float | None) -> Any:  # noqa: ANN401
    found = session.store.reader_group(group)
    with session.store.catalog.lock:
        check_group(session, groups.TakeCheckpoint.operation, session.store.catalog.group(group))
    number = session.add(_CheckpointWait(session.store.groups, group, name))
    try:
        return found.checkpoint(name, timeout)
    finally:
        session.drop(number)


# Readers


def places_of(sent: list[tuple[str, int, int]]) -> dict[Key, int]:
    """Return places by segment."""
    return {(stream, segment): place for stream, segment, place in sent}


def _open_reader(  # noqa: PLR0917 - as they are sent
    session: Session,
    group: str,
    reader_id: str,
    epoch: int | None = None,
    places: Any = (),  # noqa: ANN401
    token: str | None = None,
) -> list[Any]:
    """Open a reader; one that reconnects sends the epoch of its group, and where it was.

    A client that gave up waiting opens the reader again, maybe before the first attempt was carried out: both get it.
    """
    check_name("reader", reader_id)
    claim = None if epoch is None else Claim(epoch, places_of(places))
    with session.opening:
        reader = _joined(session, group, reader_id, claim, token)
        return [reader.number, list(reader.membership.streams), reader.membership.epoch]


def _joined(session: Session, group: str, reader_id: str, claim: Claim | None, token: str | None) -> ClientReader:
    store = session.store

    def open_and_claim(reader: ClientReader) -> None:
        reader.open()
        if session.owner is not None:
            store.groups.claim(group, session.owner)

    older: object = None
    while True:
        try:
            return store.groups.join(
                group,
                lambda membership: ClientReader(session, membership, reader_id, token),
                claim,
                admit=partial(check_new_reader, session, readers.OpenReader.operation),
                joined=open_and_claim,
            )
        except ReaderInUse:
            coordinator, before = store.groups.at_work.get(group), older
            older = None if coordinator is None else coordinator.readers.get(reader_id)
            if not isinstance(older, ClientReader):
                raise
            if older.is_open_in(session, token):
                return older
            if older is before or not older.end_if_left_behind(token):  # before: its end did not take it out
                store.check_owned()  # a store with a new owner takes nothing out
                raise


def _sync(session: Session, number: int, places: Any, told: str | None, passing: bool) -> Any:  # noqa: ANN401
    return _reader(session, number).sync(places_of(places), told, passing=passing)


def _record(session: Session, number: int, places: Any, durable: bool) -> None:  # noqa: ANN401
    reader, found = _reader(session, number), None if places is None else places_of(places)
    reader.note_seen(found)
    reader.membership.record(found, durable=durable)


def _note_places(session: Session, number: int, places: Any, returned: Any) -> None:  # noqa: ANN401
    reader = _reader(session, number)
    reader.note_seen(places_of(places), places_of(returned))
    reader.membership.record(None)  # takes silent readers of the group offline; the store records places by itself


def _finish_segment(session: Session, number: int, stream: str, segment: int, place: int) -> None:
    reader, key = _reader(session, number), (stream, segment)
    reader.note_seen(reader.places(returned=False) | {key: place}, reader.places(returned=True) | {key: place})
    reader.membership.finish_segment(key, place)


def _note_told(session: Session, number: int, stream: str, segments: list[int]) -> None:
    _reader(session, number).membership.note_loss_reported(stream, segments)


def _leave(session: Session, number: int, places: Any) -> None:  # noqa: ANN401
    """Let a reader leave; if its user may not consume any more, from where it was before that, as if it was lost."""
    reader = _reader(session, number)
    if all(session.principal.may("consume", stream) for stream in reader.streams):
        reader.note_seen(places_of(places))
    reader.leave()


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
    check_writer_id(session, stream, writer_id)
    identity = anonymous_hash(token) if writer_id is None else writer_hash(writer_id)
    found: list[Any] = []

    def make() -> ClientWriter:
        uid, lanes, keeps_keys = session.store.host.lanes(stream)
        numbers = [] if writer_id is None else session.store.host.numbers_of(stream, identity)
        if sent is not None and numbers and numbers[1] > sent:
            raise WriterFenced(stream, str(writer_id))
        found[:] = [uid, [[lane.segment_id, lane.low] for lane in lanes], keeps_keys, numbers]
        return ClientWriter(
            session,
            stream,
            writer_id,
            identity,
            token,
            notes_time=notes_time,
            durable_before=min(numbers, default=0),
            highest_before=max(numbers, default=0),
        )

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
    """Close a writer; if its user may not write any more, as if it was lost: it holds time back for a while."""
    writer: ClientWriter = session.get(number, ClientWriter)
    writer.end(for_good=for_good and session.principal.may("write", writer.stream))


def _lanes(session: Session, number: int) -> list[Any]:
    uid, lanes, keeps_keys = session.store.host.lanes(_writer(session, number).stream)
    return [uid, [[lane.segment_id, lane.low] for lane in lanes], keeps_keys]


def _last(session: Session, number: int, segment: int, place: float) -> int:
    writer = _writer(session, number)
    try:
        found = session.store.segments.get(writer.stream, segment)
    except KeyError:
        gone = f"there is no segment {segment} of stream {writer.stream} any more: open the writer again"
        raise BadArgument(gone) from None
    return found.last_of(writer.identity, place, durable=writer.durable_before)


def _find(session: Session, number: int, blocks: list[list[Any]]) -> list[int | None]:
    return _writer(session, number).find(blocks)


def _open_upload(session: Session, number: int) -> int:
    return session.add(LargeUpload(session, _writer(session, number)), "uploads")


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
    _upload(session, writer, number).abandon()
    session.drop(number)


HANDLERS: Final[dict[type[Operation], Callable[Concatenate[Session, ...], Any]]] = {
    streams.CreateStream: _create_stream,
    streams.ListStreams: _streams,
    streams.Info: lambda session, *args: session.store.stream(*args),
    streams.ListSegments: lambda session, *args: session.store.stream_segments(*args),
    streams.Update: lambda session, *args: session.store.update_stream(*args),
    streams.Scale: lambda session, *args: session.store.scale_stream(*args),
    streams.SealStream: lambda session, *args: session.store.seal_stream(*args),
    streams.DeleteStream: lambda session, *args: session.store.delete_stream(*args),
    streams.TruncateStream: lambda session, *args: session.store.truncate_stream(*args),
    streams.Head: lambda session, *args: session.store.head(*args),
    streams.Tail: lambda session, *args: session.store.tail(*args),
    streams.SegmentRanges: lambda session, *args: session.store.segment_ranges(*args),
    streams.FindNextCut: _next_cut,
    streams.GetWatermarks: lambda session, *args: session.store.watermarks(*args),
    streams.LastWatermark: lambda session, *args: session.store.watermark(*args),
    streams.AddWatermarks: _add_watermarks,
    streams.CutAtTime: _cut_at_time,
    streams.GetTimeWindow: lambda session, *args: session.store.time_window(*args),
    streams.RegisterConsumer: _register_consumer,
    streams.ListConsumers: lambda session, *args: session.store.consumers(*args),
    streams.ListConsumerTimes: lambda session, *args: session.store.consumer_times(*args),
    streams.UnregisterConsumer: _unregister_consumer,
    streams.Maintain: lambda session, *args: session.store.maintain(*args),
    streams.SegmentAt: _segment_at,
    streams.Watch: lambda session, *key: session.watch(key),
    streams.Unwatch: lambda session, *key: session.unwatch(key),
    streams.Probe: make_probe,
    streams.EndProbe: end_probe,
    streams.Locate: _locate,
    streams.GetTimes: _times,
    groups.ListGroups: _groups,
    groups.CreateGroup: _create_group,
    groups.FindGroup: lambda session, *group: session.store.reader_group(*group).name,
    groups.GetStreams: lambda session, *group: session.store.reader_group(*group).streams,
    groups.GetPosition: lambda session, *group: session.store.reader_group(*group).position,
    groups.Checkpoints: lambda session, *group: session.store.reader_group(*group).checkpoints,
    groups.IsFinished: lambda session, *group: session.store.reader_group(*group).finished,
    groups.Readers: lambda session, *group: session.store.reader_group(*group).readers(),
    groups.TakeOffline: lambda session, group, *args: _own_group(session, groups.TakeOffline, group).reader_offline(
        *args
    ),
    groups.TakeCheckpoint: _checkpoint,
    groups.Reset: lambda session, group, *to: _own_group(session, groups.Reset, group).reset(*to),
    groups.GetLag: lambda session, *group: session.store.reader_group(*group).lag(),
    groups.DeleteGroup: lambda session, *group: _own_group(session, groups.DeleteGroup, *group).delete(),
    groups.CurrentTimeWindow: lambda session, group, *of: session.store.reader_group(group).current_time_window(*of),
    readers.OpenReader: _open_reader,
    readers.Sync: _sync,
    readers.IsGroupFinished: lambda session, *group: session.store.reader_group(*group).finished,
    readers.Report: _note_places,
    readers.RecordPlaces: _record,
    readers.FinishSegment: _finish_segment,
    readers.NoteTold: _note_told,
    readers.Leave: _leave,
    writers.OpenWriter: _open_writer,
    writers.GetLanes: _lanes,
    writers.Last: _last,
    writers.Find: _find,
    writers.Mark: lambda session, number, *time: _writer(session, number).mark(*time),
    writers.CloseWriter: _close_writer,
    transactions.OpenTransactions: _transactions.open_writer,
    transactions.BeginTransaction: _transactions.begin,
    transactions.CloseTransactions: _transactions.close,
    transactions.CommitAll: _transactions.commit_all,
    transactions.LastNumber: _transactions.last_number,
    transactions.Status: _transactions.status,
    transactions.Ping: lambda session, *ids: session.store.transactions.get(*ids).ping(),
    transactions.Abort: _transactions.abort,
    transactions.WriteEvents: _transactions.write,
    transactions.WriteBatch: _transactions.write_batch,
    transactions.Prepare: lambda session, *ids: session.store.transactions.get(*ids).prepare(),
    transactions.BeginEvent: _transactions.begin_event,
    transactions.WriteChunk: _transactions.write_chunk,
    transactions.EndEvent: _transactions.end_event,
    transactions.DropEvent: _transactions.drop_event,
    transactions.Commit: _transactions.commit,
    writers.OpenUpload: _open_upload,
    writers.WriteUpload: _write_upload,
    writers.CommitUpload: _commit_upload,
    writers.DropUpload: _drop_upload,
    snapshots.TakeSnapshot: _snapshots.take_snapshot,
    snapshots.ListPlogs: _snapshots.list_plogs,
    snapshots.ReadSnapshot: _snapshots.read_snapshot,
    snapshots.CloseSnapshot: _snapshots.close_snapshot,
    clusters.ClusterStatus: send_members,
    overviews.GetOverview: _overviews.overview,
    overviews.GetStreamFigures: _overviews.stream_figures_of,
}
