"""``format("penstock-repo")``: a repository as a table of Spark, for batch queries.

Tasks share the blocks of the repository, and each makes the texts in its blocks whole. A block has the versions of one
file, or of a few, side by side. The planner reads the index only. A filter on the revision chooses blocks by the index;
all filters are applied before a text is decoded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, EqualTo, In, InputPartition, StringStartsWith

from penstock.repo import Repository, RepositoryPart
from penstock.spark._errors import plain, plain_each
from penstock.spark._options import repository_options
from penstock.spark._repository_tables import TABLES, encoded
from penstock.spark._stores import PATIENCE_S, open_at, shared

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, MutableMapping, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

    from penstock.spark._options import RepositoryOptions

__all__ = ["RepositorySource"]

_PARTS: Final = 16


class RepositorySource(DataSource):
    """The data source that Spark instantiates for ``format("penstock-repo")``."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        self.options = dict(options)

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format()``."""
        return "penstock-repo"

    @plain
    def schema(self) -> StructType | str:
        """Return the columns of the table; a stream that is not a repository is reported here first."""
        options = repository_options(self.options)
        with open_at(options.address) as store:
            Repository.open(store, options.stream)
        return TABLES[options.table].schema

    @plain
    def reader(self, schema: StructType) -> RepositoryReader:
        """Return the reader of a batch query."""
        del schema  # Spark selects columns by itself
        return RepositoryReader(repository_options(self.options))


@dataclass(frozen=True)
class BlocksPart(InputPartition):
    blocks: RepositoryPart


class RepositoryReader(DataSourceReader):
    """Reads a table of a repository."""

    def __init__(self, options: RepositoryOptions) -> None:
        self._options = options
        self._filters: list[Filter] = []

    @plain
    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Accept filters on the columns that say which item it is; return the others."""
        columns = TABLES[self._options.table].filtered
        for condition in filters:
            is_known = type(condition) in {EqualTo, In, StringStartsWith}
            if is_known and len(condition.attribute) == 1 and condition.attribute[0] in columns:  # type: ignore[attr-defined]
                self._filters.append(condition)
            else:
                yield condition

    @plain
    def partitions(self) -> Sequence[InputPartition]:
        """Return the parts that tasks read."""
        with open_at(self._options.address, patience_s=PATIENCE_S) as store:
            repository = Repository.open(store, self._options.stream)
            parts = repository.parts(self._revisions(), count=self._options.min_partitions or _PARTS)
        return [BlocksPart(part) for part in parts]

    @plain_each
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of a part."""
        if not isinstance(partition, BlocksPart):
            return  # an empty repository is one part, of nothing
        repository = Repository.open(shared(self._options.address), self._options.stream)
        yield from TABLES[self._options.table].batches(repository, partition.blocks, self._is_wanted)

    def _revisions(self) -> list[bytes] | None:
        """Return the revisions that the filters allow; None if they do not say which."""
        for condition in self._filters:
            if condition.attribute == ("revision",) and not isinstance(condition, StringStartsWith):  # type: ignore[attr-defined]
                return [encoded(value) for value in _values(condition) if value is not None]
        return None

    def _is_wanted(self, column: str, value: str | None) -> bool:
        """Whether a row with this value in a column may pass all filters."""
        return all(_passes(condition, value) for condition in self._filters if condition.attribute == (column,))  # type: ignore[attr-defined]


def _values(condition: Any) -> list[str | None]:  # noqa: ANN401 - filters share no type that has a value
    return list(condition.value) if isinstance(condition, In) else [condition.value]


def _passes(condition: Any, value: str | None) -> bool:  # noqa: ANN401
    if value is None:
        return False  # as in SQL
    if isinstance(condition, StringStartsWith):
        return value.startswith(condition.value)
    return value in _values(condition)
