"""Who reads a stream and who is writing to it: reader groups, consumers, transactions and large events under way."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from penstock.errors import DataTruncated, LogError, StreamError, WrongCut

if TYPE_CHECKING:
    from penstock.console._ports import ConsoleStore, ConsoleUser, SeesGroups
    from penstock.model import StreamCut

__all__ = ["readers_of"]

_GROUPS_MAX: Final = 100
_READERS_MAX: Final = 200
_CONSUMERS_MAX: Final = 200
_TRANSACTIONS_MAX: Final = 200


def readers_of(store: ConsoleStore, access: SeesGroups, user: ConsoleUser, name: str) -> dict[str, Any]:
    """Return the groups that the user may know of, the consumers, the open transactions and the large events."""
    with store.catalog.lock:
        state = store.catalog.open_stream(name)
        known = [store.catalog.groups[group] for group in sorted(store.catalog.groups)]
        groups = [(group.name, group.owner) for group in known if name in group.streams and access.may_see(user, group)]
    shown = [row for row in (_group(store, group, owner, name) for group, owner in groups[:_GROUPS_MAX]) if row]
    consumers = store.consumers(name)
    times, tail = store.consumer_times(name), store.tail(name)
    transactions = _transactions(store, name)
    return {
        "now_ms": int(store.clock.now() * 1000),
        "groups": shown,
        "groups_total": len(groups),
        "consumers": [
            {"name": consumer, "moved_ms": times.get(consumer), "behind_bytes": _behind(store, name, cut, tail)}
            for consumer, cut in list(consumers.items())[:_CONSUMERS_MAX]
        ],
        "consumers_total": len(consumers),
        "transactions": transactions[:_TRANSACTIONS_MAX],
        "transactions_total": len(transactions),
        "large_events": store.host.large_events(state.uid),
    }


def _group(store: ConsoleStore, group: str, owner: str | None, stream: str) -> dict[str, Any] | None:
    with suppress(StreamError, LogError, KeyError):  # it may have been deleted meanwhile
        found = store.reader_group(group)
        lag, readers = found.lag(), store.groups.reader_lags(group, stream)
        rows = [
            {"name": reader, "segments": sorted(held), "behind_bytes": sum(held.values())}
            for reader, held in readers.items()
        ]
        return {
            "name": group,
            "owner": owner,
            "streams": list(found.streams),
            "lag": {"events": lag.events, "bytes": lag.bytes, "seconds": lag.seconds},
            "readers": rows[:_READERS_MAX],
            "readers_total": len(rows),
            "finished": found.finished,
        }
    return None


def _behind(store: ConsoleStore, name: str, cut: StreamCut, tail: StreamCut) -> int | None:
    """Return the bytes from a consumer's cut to the tail; from the head if the cut was truncated away."""
    try:
        return sum(part.size for part in store.segment_ranges(name, cut, tail))
    except (DataTruncated, WrongCut):
        with suppress(StreamError):
            return sum(part.size for part in store.segment_ranges(name, None, tail))
    return None


def _transactions(store: ConsoleStore, name: str) -> list[dict[str, Any]]:
    now_ms = int(store.clock.now() * 1000)
    with store.catalog.lock:
        prepared = [record for record in store.catalog.prepared.values() if record.stream == name]
        known = {record.transaction for record in prepared}
        begun = [found for found in store.transactions.open.values() if found.stream == name and found.id not in known]
    rows = [
        {
            "id": record.transaction,
            "status": "prepared",
            "writer": record.writer,
            "owner": record.owner,
            "lease_left_s": max(0.0, (record.deadline_ms - now_ms) / 1000),
        }
        for record in prepared
    ]
    rows += [
        {
            "id": transaction.id,
            "status": "open",
            "writer": transaction.writer_id,
            "owner": transaction.owner,
            "lease_left_s": transaction.lease_left_s,
        }
        for transaction in begun
    ]
    return sorted(rows, key=lambda row: (row["lease_left_s"], row["id"]))
