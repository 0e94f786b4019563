"""The figures of ``/metrics`` of any server, by their names."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from tests.server.cluster import ask


def figures_at(http_port: int) -> dict[str, float]:
    """Return the figures of a port that asks for no login; of those with labels, one."""
    status, text = ask(http_port, "/metrics")
    assert status == 200
    families = text_string_to_metric_families(text)
    return {sample.name: sample.value for family in families for sample in family.samples}
