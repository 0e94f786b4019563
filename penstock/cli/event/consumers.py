"""``penstock event consumers``: list the consumers of a stream, and drop dead ones."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli._output import JsonOption, duration, fail, print_json, print_rows, size
from penstock.cli._store import STORE_DEFAULT, StoreOption, existing_store
from penstock.cli.event._target import refuse_address

if TYPE_CHECKING:
    from penstock import Store, StreamCut

EXAMPLE = "penstock event consumers shop/orders"


def consumers(
    stream: Annotated[str, typer.Argument(metavar="STREAM", help="The stream: scope/name.")],
    *,
    drop: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Remove this consumer: events are not kept for it. May be repeated."),
    ] = None,
    store: StoreOption = STORE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Print the consumers for which the events of a stream are kept: position, bytes behind, and age.

    The age is the time since the consumer last moved. A consumer that is behind and has not moved for long is dead, or
    should be looked after: with retention by consumption, a stream grows while it waits.
    """
    refuse_address(stream)
    with existing_store(store) as opened:
        cuts = opened.consumers(stream)
        for name in drop or []:
            if name not in cuts:
                fail(f"stream {stream} has no consumer {name!r}: penstock event consumers {stream} lists them")
            opened.unregister_consumer(stream, name)
            del cuts[name]
        times, tail, now = opened.consumer_times(stream), opened.tail(stream), time.time()
        behind = {name: _behind(opened, cut, tail) for name, cut in cuts.items()}
    ages = {name: None if (moved := times.get(name)) is None else max(now - moved / 1000, 0.0) for name in cuts}
    if as_json:
        found = [
            {"name": name, "position": str(cut), "bytes_behind": behind[name], "age_s": ages[name]}
            for name, cut in cuts.items()
        ]
        print_json(found)
        return
    rows = [(name, str(cut), size(behind[name]), _age(ages[name])) for name, cut in cuts.items()]
    print_rows(("name", "position", "behind", "age"), rows)


def _behind(store: Store, cut: StreamCut, tail: StreamCut) -> int:
    """Return the bytes from a cut to the tail, as far as they are still there: others may have truncated the stream."""
    start = store.next_cut(cut.stream, cut, cut, skip_truncated=True).cut
    return sum(part.size for part in store.segment_ranges(cut.stream, start, tail))


def _age(seconds: float | None) -> str:
    return "-" if seconds is None else duration(round(seconds, 1))
