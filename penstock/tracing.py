"""Traces that go on behind a stream: the context of OpenTelemetry, in the headers of events.

A writer adds the context of its span with :func:`inject`, and a reader continues the trace with :func:`extract`. The
headers are those of the W3C, ``traceparent``, ``tracestate`` and ``baggage``, or whichever the configured propagator
writes, so that programs without Penstock's Python package understand them, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.errors import BadArgument
from penstock.model import shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from opentelemetry.context import Context

    GivenHeaders = Mapping[str, bytes] | Iterable[tuple[str, bytes]]

__all__ = ["extract", "inject"]


def inject(headers: GivenHeaders | None = None, *, context: Context | None = None) -> list[tuple[str, bytes]]:
    """Return headers for an event with the context of the current span, or of ``context``.

    A context that the headers had before is replaced, as that of an event that is copied. Without a span, the headers
    stay as they are.
    """
    pairs, carrier = _pairs(headers), dict[str, str]()
    _propagate().inject(carrier, context)
    return [pair for pair in pairs if pair[0] not in carrier] + [
        (name, text.encode()) for name, text in carrier.items()
    ]


def extract(headers: GivenHeaders | None, *, context: Context | None = None) -> Context:
    """Return the context in the headers of an event, for ``tracer.start_as_current_span(..., context=...)``.

    ``headers`` are those of an event that was read, its ``header_pairs``, or those of a row of a batch. If they have no
    context, or one that is malformed, the result is the current context, or ``context``.
    """
    carrier = {name: value.decode(errors="replace") for name, value in _pairs(headers)}
    found: Context = _propagate().extract(carrier, context=context)
    return found


def _pairs(headers: object) -> list[tuple[str, bytes]]:
    if headers is None:
        return []
    try:
        pairs = list(headers.items() if hasattr(headers, "items") else headers)  # type: ignore[arg-type]
        if all(isinstance(name, str) and isinstance(value, bytes) for name, value in pairs):
            return pairs
    except (TypeError, ValueError):
        pass
    raise BadArgument(f"invalid headers {shown(headers)}: use a mapping of names to bytes, or a list of pairs")


def _propagate() -> Any:  # noqa: ANN401 - a module, which may be missing
    try:
        from opentelemetry import propagate  # noqa: PLC0415 - only programs with traces have it
    except ModuleNotFoundError:
        advice = "pip install 'penstock-stream[tracing]'"
        raise BadArgument(f"traces need the package opentelemetry-api: {advice}") from None
    return propagate
