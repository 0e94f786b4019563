"""The figures of the scrub for Prometheus."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.core import Metric

    from penstock.plog.server import Scrubber

__all__ = ["scrub_metrics"]

_NAME: Final = "penstock_plog_server_scrub"


def scrub_metrics(scrubber: Scrubber) -> Iterator[Metric]:
    """Return the figures of now."""
    figures = scrubber.figures
    yield GaugeMetricFamily(f"{_NAME}_progress", "Share of the present scrub that is done.", figures.progress)
    yield GaugeMetricFamily(f"{_NAME}_damaged", "Damaged replicas not replaced yet.", scrubber.damaged())
    yield CounterMetricFamily(f"{_NAME}_plogs", "Replicas that the scrub has checked.", figures.plogs)
    yield CounterMetricFamily(f"{_NAME}_bytes", "Bytes that the scrub has read.", figures.size)
    yield CounterMetricFamily(f"{_NAME}_runs", "Scrubs of all replicas of a partition.", figures.runs)
    yield CounterMetricFamily(f"{_NAME}_found", "Damaged replicas that the scrub has found.", figures.found)
    yield CounterMetricFamily(f"{_NAME}_unreadable", "Replicas that could not be read.", figures.unreadable)
