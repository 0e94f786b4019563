"""The store's figures for Prometheus, looked up when they are asked for: they cost writers and readers nothing."""

from __future__ import annotations

import math
import threading
from contextlib import suppress
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from penstock.errors import PenstockError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from prometheus_client.core import Metric

    from penstock.plog import BucketUse, ReplicationUse
    from penstock.server._health import AnyHealth
    from penstock.server._limits import QuotaUse
    from penstock.server._log_counts import LogCounter
    from penstock.server._login import Logins
    from penstock.server._ports import MeasuredStore
    from penstock.stream.segment import Segment

__all__ = ["NAMES_MAX", "new_registry", "standby_registry"]

NAMES_MAX: Final = 1000  # streams that have figures of their own, and groups; the first by name


def new_registry(
    store: MeasuredStore,
    connections: Mapping[str, Callable[[], int]],
    quotas: Callable[[], Iterable[QuotaUse]],
    health: AnyHealth,
    logins: Logins | None = None,
    *,
    sent_bytes: Callable[[], int],
    logged: LogCounter,
) -> CollectorRegistry:
    """Return everything there is to measure; ``connections`` count the clients of each protocol."""
    registry = _process_registry(logged)
    registry.register(_StoreCollector(store, connections, quotas, health, logins, sent_bytes=sent_bytes))
    return registry


def standby_registry(health: AnyHealth, logged: LogCounter) -> CollectorRegistry:
    """Return what there is to measure of a server that stands by."""
    registry = _process_registry(logged)
    registry.register(_StandbyCollector(health))
    return registry


def _process_registry(logged: LogCounter) -> CollectorRegistry:
    registry = CollectorRegistry()
    for kind in (ProcessCollector, PlatformCollector, GCCollector):
        kind(registry=registry)
    registry.register(_LogCollector(logged))
    return registry


class _LogCollector(Collector):
    def __init__(self, logged: LogCounter) -> None:
        self._logged = logged

    def collect(self) -> Iterable[Metric]:
        """Yield the metrics of this moment."""
        counts = self._logged.counts
        about = "Errors and warnings that were logged."
        family = CounterMetricFamily("penstock_log_records", about, labels=["level"])
        family.add_metric(["error"], counts.errors)
        family.add_metric(["warning"], counts.warnings)
        yield family


def _roles(health: AnyHealth, *, is_owner: bool) -> Iterable[Metric]:
    yield _gauge("penstock_healthy", "Whether the server can do its work.", {"": health.trouble() is None})
    yield _gauge("penstock_owner", "Whether the server owns its store; otherwise it stands by.", {"": is_owner})


class _StandbyCollector(Collector):
    def __init__(self, health: AnyHealth) -> None:
        self._health = health

    def describe(self) -> Iterable[Metric]:
        """Nothing before it is asked for."""
        return []

    def collect(self) -> Iterable[Metric]:
        """Yield the metrics of this moment."""
        return _roles(self._health, is_owner=False)


class _StoreCollector(Collector):
    def __init__(
        self,
        store: MeasuredStore,
        connections: Mapping[str, Callable[[], int]],
        quotas: Callable[[], Iterable[QuotaUse]],
        health: AnyHealth,
        logins: Logins | None,
        *,
        sent_bytes: Callable[[], int],
    ) -> None:
        self._store, self._connections, self._quotas = store, connections, quotas
        self._health, self._logins, self._sent_bytes = health, logins, sent_bytes
        self._appended = _Appended()

    def describe(self) -> Iterable[Metric]:
        """Nothing before it is asked for: a registry would look at the whole store to see which names it has."""
        return []

    def collect(self) -> Iterable[Metric]:
        """Yield the metrics, computed from the state of the store now."""
        yield from _roles(self._health, is_owner=True)
        troubles = dict.fromkeys(sorted(self._health.stream_troubles())[:NAMES_MAX], 1.0)
        yield _gauge("penstock_stream_trouble", "Maintenance of a stream failed.", troubles, label="stream")
        yield from self._streams()
        yield from self._groups()
        yield self._syncs()
        use = self._store.bucket_use
        if use is not None:
            yield from _bucket_metrics(use)
        replication = self._store.replication_use
        if replication is not None:
            yield from _replication_metrics(replication)
        yield _gauge("penstock_open_transactions", "Transactions under way.", {"": len(self._store.transactions.open)})
        yield CounterMetricFamily("penstock_sent_bytes", "Bytes of events sent over Flight.", self._sent_bytes())
        counts = {kind: count() for kind, count in self._connections.items()}
        yield _gauge("penstock_connections", "Clients that are connected.", counts, label="protocol")
        if self._logins is not None:
            about = "Logins with a wrong password or token."
            yield CounterMetricFamily("penstock_failed_logins", about, self._logins.failed)
            about = "Logins that were not checked, because too many waited."
            yield CounterMetricFamily("penstock_refused_logins", about, self._logins.refused)
        yield from self._limits()

    def _limits(self) -> Iterable[Metric]:
        uses = list(self._quotas())
        limits, used = {use.kind: use.limit for use in uses}, {use.kind: float(use.used) for use in uses}
        yield _gauge("penstock_limit", "How much of a kind there may be.", limits, label="kind")
        yield _gauge("penstock_used", "How much of a kind there is.", used, label="kind")
        refused = CounterMetricFamily("penstock_refused", "How often a limit was reached.", labels=["kind"])
        for use in uses:
            refused.add_metric([use.kind], use.refused)
        yield refused

    def _streams(self) -> Iterable[Metric]:
        catalog, now = self._store.catalog, self._store.clock.now()
        with catalog.lock:
            uids = {name: catalog.streams[name].uid for name in sorted(catalog.streams)}
        appended = self._appended.totals(self._store.segments.at_work(), set(uids.values()))
        events, data = (
            CounterMetricFamily("penstock_appended_events", "Events appended since the start.", labels=["stream"]),
            CounterMetricFamily("penstock_appended_bytes", "Bytes appended since the start.", labels=["stream"]),
        )
        sizes, ages = dict[str, float](), dict[str, float]()
        for name, uid in list(uids.items())[:NAMES_MAX]:
            with suppress(PenstockError):  # it may have been deleted meanwhile, or its servers may be away
                sizes[name] = self._store.stream(name).size_bytes
                mark = self._store.watermark(name)
                if mark is not None:
                    ages[name] = max(now - mark.lower / 1000, 0.0)
                for family, count in zip((events, data), appended.get(uid, (0, 0)), strict=True):
                    family.add_metric([name], count)
        yield _gauge("penstock_streams", "Streams in the store.", {"": len(uids)})
        yield from (events, data)
        yield _gauge("penstock_stream_bytes", "Bytes that a stream holds.", sizes, label="stream")
        about = "How long ago the time is that all writers have promised to be past."
        yield _gauge("penstock_watermark_age_seconds", about, ages, label="stream")

    def _groups(self) -> Iterable[Metric]:
        behind, since = dict[str, float](), dict[str, float]()
        for name in self._store.reader_groups()[:NAMES_MAX]:
            with suppress(PenstockError):
                lag = self._store.reader_group(name).lag()
                behind[name], since[name] = lag.bytes, lag.seconds
        yield _gauge("penstock_group_lag_bytes", "Bytes that a reader group has not read yet.", behind, label="group")
        about = "How long the oldest event that a reader group has not read yet has been there."
        yield _gauge("penstock_group_lag_seconds", about, since, label="group")

    def _syncs(self) -> Metric:
        counts, total_s = self._store.syncs.figures()
        bounds = [*map(str, self._store.syncs.BOUNDS_S), "+Inf"]
        buckets = list(zip(bounds, accumulate(counts), strict=True))
        family = HistogramMetricFamily("penstock_sync_seconds", "How long the disk took to make writes durable.")
        family.add_metric([], buckets, total_s)
        return family


class _Appended:
    """What was appended to each stream: never less than before, although segments go with their figures."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: dict[tuple[int, int], tuple[int, int]] = {}  # by stream and segment
        self._totals: dict[int, tuple[int, int]] = {}  # by stream

    def totals(self, segments: Mapping[tuple[int, int], Segment], streams: set[int]) -> dict[int, tuple[int, int]]:
        """Return events and bytes of each of the streams."""
        with self._lock:
            found = {key: (segment.events, segment.bytes) for key, segment in segments.items()}
            for (uid, segment), (events, size) in found.items():
                old_events, old_size = self._seen.get((uid, segment), (0, 0))
                all_events, all_size = self._totals.get(uid, (0, 0))
                self._totals[uid] = all_events + events - old_events, all_size + size - old_size
            self._seen = found
            self._totals = {uid: total for uid, total in self._totals.items() if uid in streams}
            return dict(self._totals)


def _bucket_metrics(use: BucketUse) -> Iterable[Metric]:
    requests = CounterMetricFamily("penstock_bucket_requests", "Requests to the object store.", labels=["kind"])
    sizes = CounterMetricFamily("penstock_bucket_bytes", "Bytes to and from the object store.", labels=["kind"])
    for kind, count in use.requests.items():
        requests.add_metric([kind], count.requests)
        sizes.add_metric([kind], count.size)
    yield from (requests, sizes)
    yield CounterMetricFamily("penstock_cache_hits", "Reads that the cache of objects answered.", use.cache.hits)
    yield CounterMetricFamily("penstock_cache_fetches", "Chunks that the cache of objects fetched.", use.cache.fetches)
    places = {"memory": use.cache.memory_size, "disk": use.cache.disk_size}
    yield _gauge("penstock_cache_bytes", "Bytes in the cache of objects.", places, label="place")


def _replication_metrics(use: ReplicationUse) -> Iterable[Metric]:
    about = "Plog servers that do not answer this owner, or take no writes."
    yield _gauge("penstock_plog_servers_away", about, {"": len(use.away)})
    about = "Plogs known to lack a good replica; NaN until it is known, after a plog server was away, whether any do."
    count = use.under_replicated if use.under_replicated or use.is_known else math.nan
    yield _gauge("penstock_under_replicated_plogs", about, {"": count})
    about = "Bytes that were copied to repair replicas."
    yield CounterMetricFamily("penstock_repaired_bytes", about, use.copied_size)


def _gauge(name: str, about: str, figures: Mapping[str, float], *, label: str | None = None) -> Metric:
    family = GaugeMetricFamily(name, about, labels=None if label is None else [label])
    for label_value, figure in figures.items():
        family.add_metric([] if label is None else [label_value], figure)
    return family
