"""``format("penstock")``: streams as sources and sinks of Spark, for batch and streaming queries.

Spark imports this in processes of which each needs one thing: a schema, a reader or a writer. So that each is ready
soon, a method imports what only it needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceStreamReader

from penstock.errors import BadArgument, PenstockError
from penstock.spark._errors import plain
from penstock.spark._options import sink_options, source_options
from penstock.spark._stores import open_at

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from pyspark.sql.types import StructType

    from penstock.spark._reader import PenstockReader
    from penstock.spark._sink import PenstockStreamWriter, PenstockWriter
    from penstock.spark._stream_reader import PenstockStreamReader

__all__ = ["PenstockSource"]


class PenstockSource(DataSource):
    """The data source that Spark instantiates for ``format("penstock")``."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        self.options = dict(options)

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format()``."""
        return "penstock"

    @plain
    def schema(self) -> StructType | str:
        """Return the default columns; a stream that does not exist is reported here first."""
        from penstock.spark._columns import schema_of  # noqa: PLC0415

        options = source_options(self.options)
        with open_at(options.address) as store:
            for name in options.streams:
                store.stream(name)
        return schema_of(options)

    @plain
    def reader(self, schema: StructType) -> PenstockReader:
        """Return the reader of a batch query."""
        from penstock.spark._columns import check_schema  # noqa: PLC0415
        from penstock.spark._reader import PenstockReader  # noqa: PLC0415

        options = source_options(self.options)
        limits = ("max_bytes_per_trigger", "max_events_per_trigger", "watermark_interval_ms")
        for name in (*limits, "align", "mark_rows", "consumer"):
            if (given := getattr(options, name)) is not None and given is not False:
                option = name.removesuffix("_ms")
                raise BadArgument(f"the option {option!r} is for spark.readStream only: spark.read reads all at once")
        check_schema(options, schema)
        return PenstockReader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return the reader of a streaming query."""
        try:
            return self._stream_reader(schema)
        except PenstockError as error:
            from penstock.spark._stream_reader import RefusedStreamReader  # noqa: PLC0415

            return RefusedStreamReader(error)

    def _stream_reader(self, schema: StructType) -> PenstockStreamReader:
        from penstock.spark._columns import check_schema  # noqa: PLC0415
        from penstock.spark._stream_reader import PenstockStreamReader  # noqa: PLC0415

        options = source_options(self.options)
        if options.end != "latest":
            raise BadArgument("the option 'end' is for spark.read only: a streaming query ends when it is stopped")
        check_schema(options, schema)
        return PenstockStreamReader(options, schema)

    @plain
    def writer(self, schema: StructType, overwrite: bool) -> PenstockWriter:
        """Return the writer of a batch query."""
        from penstock.spark._sink import PenstockWriter  # noqa: PLC0415

        options = sink_options(self.options)
        if overwrite:
            raise BadArgument("a stream is append-only: use mode('append')")
        if options.time is not None:
            raise BadArgument("the option 'time' is for writeStream only: a batch write has no watermark")
        with open_at(options.address) as store:
            if options.stream is not None:
                store.transactional_writer(options.stream)  # which raises an error if there is no such stream
        return PenstockWriter(options, schema)

    @plain
    def streamWriter(self, schema: StructType, overwrite: bool) -> PenstockStreamWriter:  # noqa: N802
        """Return the writer of a streaming query; with outputMode("complete") each batch is the whole result."""
        from penstock.spark._sink import PenstockStreamWriter  # noqa: PLC0415

        options = sink_options(self.options)
        if overwrite and options.time is not None:
            raise BadArgument(
                "the option 'time' does not go with outputMode('complete'): each batch has all rows again, old ones too"
            )
        if options.txn_app_id is not None:
            raise BadArgument(
                "the option 'txn_app_id' is for df.write: a streaming query has a name and numbers itself"
            )
        return PenstockStreamWriter(options, schema)
