"""Traces over write and read, with the SDK of OpenTelemetry."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
from opentelemetry import baggage, trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import penstock
from penstock import tracing
from penstock.errors import BadArgument

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock import Store

STREAM = "shop/orders"


@pytest.fixture
def spans() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def tracer(spans: InMemorySpanExporter) -> Iterator[trace.Tracer]:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    yield provider.get_tracer(__name__)
    provider.shutdown()


@pytest.fixture
def store() -> Iterator[Store]:
    with penstock.connect("memory:") as store:
        store.create_stream(STREAM)
        yield store


def test_a_span_of_a_reader_continues_the_trace_of_the_writer(
    store: Store, tracer: trace.Tracer, spans: InMemorySpanExporter
) -> None:
    """Between the order and the invoice lies a stream; a trace that ends there explains neither."""
    with tracer.start_as_current_span("place order"), store.writer(STREAM) as writer:
        writer.write_event(b"1", headers=tracing.inject({"shop": b"7"}))
        writer.write_batch([b"2"], headers=[tracing.inject()])
    with store.create_reader_group("billing", [STREAM]).reader("r") as reader:
        read = reader.read_next_event(timeout=0)
        assert read is not None
        assert read.headers["shop"] == b"7"
        with tracer.start_as_current_span("send invoice", context=tracing.extract(read.headers)):
            pass
    rows = [row for batch in store.read(STREAM) for row in batch.to_pylist()]
    with tracer.start_as_current_span("count", context=tracing.extract(rows[1]["headers"])):
        pass
    placed, invoice, count = sorted(spans.get_finished_spans(), key=lambda span: span.start_time or 0)
    assert [span.name for span in (placed, invoice, count)] == ["place order", "send invoice", "count"]
    for span in (invoice, count):
        assert span.context is not None
        assert span.parent is not None
        assert placed.context is not None
        assert (span.context.trace_id, span.parent.span_id) == (placed.context.trace_id, placed.context.span_id)
        assert span.parent.is_remote


def test_a_copy_carries_the_context_of_its_own_span(tracer: trace.Tracer) -> None:
    """With two contexts in one event, the reader would continue the wrong one."""
    with tracer.start_as_current_span("first"):
        first = tracing.inject([("d", b"1"), ("d", b"2")])
    with tracer.start_as_current_span("copy") as copy:
        second = tracing.inject(first, context=baggage.set_baggage("user", "7"))
    assert [name for name, _ in second] == ["d", "d", "traceparent", "baggage"]
    context = tracing.extract(second)
    assert trace.get_current_span(context).get_span_context().span_id == copy.get_span_context().span_id
    assert baggage.get_baggage("user", context) == "7"


@pytest.mark.parametrize("headers", [None, {}, {"traceparent": b"nonsense"}, [("traceparent", b"\xff\xfe")]])
def test_headers_without_a_context_begin_a_new_trace(headers: dict[str, bytes] | None) -> None:
    """Events come from programs without traces, too, and a header that anyone can write must not stop a reader."""
    assert not trace.get_current_span(tracing.extract(headers)).get_span_context().is_valid
    assert tracing.inject(None) == []


@pytest.mark.parametrize("headers", ["text", 7, [b"x"], {"a": 1}, [("a", b"1", 2)]])
def test_what_are_no_headers_is_refused(headers: object) -> None:
    """A wrong type is a mistake of the program, and is named where it was made."""
    for use in (tracing.inject, tracing.extract):
        with pytest.raises(BadArgument, match="invalid headers"):
            use(headers)  # type: ignore[arg-type]


def test_without_opentelemetry_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an extra, and most programs do not have it."""
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(BadArgument, match=r"penstock-stream\[tracing\]"):
        tracing.inject()
