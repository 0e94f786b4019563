"""The figures of FutoIn for Prometheus."""

from __future__ import annotations

from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from penstock.errors import PenstockError
from penstock.events.consumers import CONSUMER_PREFIX
from penstock.server._metrics import NAMES_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prometheus_client.core import Metric

    from penstock.server._futoin import FutoinPort
    from penstock.server._ports import ListedStore

__all__ = ["FutoinCollector"]


class FutoinCollector(Collector):
    """Calls, pushed events, and how far registered consumers are behind; looked up when they are asked for."""

    def __init__(self, port: FutoinPort, store: ListedStore) -> None:
        self._port, self._store = port, store

    def describe(self) -> Iterable[Metric]:
        """Nothing before it is asked for."""
        return []

    def collect(self) -> Iterable[Metric]:
        """Yield the metrics of this moment."""
        service = self._port.service
        yield CounterMetricFamily("penstock_futoin_calls", "Calls of FutoIn since the start.", service.calls)
        about = "Events that receivers have taken since the start."
        yield CounterMetricFamily("penstock_futoin_pushed_events", about, service.pushed_events)
        about = "Bytes that a registered consumer has not read yet."
        lag = GaugeMetricFamily("penstock_futoin_lag_bytes", about, labels=["stream", "consumer"])
        for stream, consumer, behind in islice(self._behind(), NAMES_MAX):
            lag.add_metric([stream, consumer.removeprefix(CONSUMER_PREFIX)], behind)
        yield lag

    def _behind(self) -> Iterator[tuple[str, str, int]]:
        for stream in sorted(self._store.catalog.streams):
            with suppress(PenstockError):  # it may have been deleted meanwhile, or its servers may be away
                for name, cut in sorted(self._store.consumers(stream).items()):
                    if name.startswith(CONSUMER_PREFIX):
                        yield stream, name, self._store.tail(stream).offsets[0] - cut.offsets.get(0, 0)
