"""Registered consumers of streams: how far each has come, which retention by consumption goes by."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.model import StreamCut, check_name, check_positive
from penstock.ports import uninterrupted
from penstock.stream.format import ConsumerMoved

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.model import StreamPosition
    from penstock.ports import Clock
    from penstock.stream.catalog import Catalog
    from penstock.stream.segment import Cuts
    from penstock.stream.time import CutFinder

__all__ = ["Consumers"]


class Consumers:
    """The registered consumers of a store. ``wake`` starts maintenance."""

    def __init__(
        self, catalog: Catalog, cuts: Cuts, finder: CutFinder, *, clock: Clock, wake: Callable[[], None]
    ) -> None:
        self._catalog, self._cuts, self._finder, self._clock, self._wake = catalog, cuts, finder, clock, wake

    @uninterrupted
    def register(
        self,
        stream: str,
        consumer: str,
        cut: StreamPosition | None = None,
        *,
        lease_s: float | None = None,
        user: str | None = None,
        admit: Callable[[], object] = lambda: None,
    ) -> None:
        """Register a consumer that needs nothing before ``cut``, the head by default; retention by consumption waits.

        With ``lease_s`` it is forgotten when it is not registered again for so many seconds. ``user`` is the user of
        the server that it belongs to from now on, if it belonged to none. ``admit`` raises why it may not be
        registered, and is called before it is.
        """
        check_name("consumer", consumer)
        if lease_s is not None:
            check_positive("lease_s", lease_s)
        place = "head" if cut is None else cut
        with self._cuts.found([stream], lambda: [{stream: self._finder.find("cut", stream, place)}]) as [found]:
            admit()
            self._move(consumer, found[stream], lease_s=lease_s, user=user)
        if lease_s is not None:
            self._wake()

    @uninterrupted
    def register_archived(self, consumer: str, cut: StreamCut, *, user: str | None = None) -> None:
        """Register a consumer that reads an archive of the stream up to the head, before which ``cut`` may lie.

        Retention by consumption waits for it at the head.
        """
        with self._catalog.lock:
            self._catalog.open_stream(cut.stream).check_cut(cut)
            self._move(consumer, cut, lease_s=None, user=user)

    def _move(self, consumer: str, cut: StreamCut, *, lease_s: float | None, user: str | None) -> None:
        """Record where a consumer is; the caller holds the catalog's lock."""
        now = self._clock.now()
        expires_ms = None if lease_s is None else int((now + lease_s) * 1000)
        known = self._catalog.open_stream(cut.stream).consumers.get(consumer)
        owner = user if known is None or known.owner is None else known.owner
        self._catalog.commit(ConsumerMoved(cut.stream, consumer, cut.offsets, expires_ms, owner, int(now * 1000)))

    @uninterrupted
    def unregister(self, stream: str, consumer: str) -> None:
        """Unregister a consumer; one that is not registered is no error."""
        check_name("consumer", consumer)
        with self._catalog.lock:
            if consumer in self._catalog.open_stream(stream).consumers:
                self._catalog.commit(ConsumerMoved(stream, consumer, None))

    def cuts(self, stream: str) -> dict[str, StreamCut]:
        """Return the registered consumers of a stream with their positions."""
        with self._catalog.lock:
            known = self._catalog.open_stream(stream).consumer_cuts()
            return {consumer: StreamCut.of(stream, cut) for consumer, cut in known.items()}

    def cut(self, stream: str, consumer: str) -> StreamCut | None:
        """Return the position of one consumer, however many there are; None if it is not registered."""
        with self._catalog.lock:
            known = self._catalog.open_stream(stream).consumers.get(consumer)
            return None if known is None or known.cut is None else StreamCut.of(stream, known.cut)

    def times(self, stream: str) -> dict[str, int | None]:
        """Return when each registered consumer of a stream was last registered, in milliseconds; None if unknown."""
        with self._catalog.lock:
            known = self._catalog.open_stream(stream).consumers
            return {consumer: known[consumer].moved_ms for consumer in sorted(known)}
