"""Errors on their way from Spark's Python processes to the user: as text, through the JVM."""

from __future__ import annotations

import re
from functools import wraps
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

from pyspark.errors import AnalysisException

from penstock import errors
from penstock.errors import BadArgument, PenstockError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.errors import PySparkException

__all__ = ["in_one_line", "plain", "plain_each", "told_by"]

P = ParamSpec("P")
T = TypeVar("T")
_OURS: Final = re.compile(
    r"^penstock\.errors\.(\w+): (.*?)(?=\n\s*(?:SQLSTATE|\tat |===|JVM )|\n\n|\Z)", re.MULTILINE | re.DOTALL
)


def plain(call: Callable[P, T]) -> Callable[P, T]:
    """Raise an error of ours without its traceback, so that its message is what Spark shows."""

    @wraps(call)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return call(*args, **kwargs)
        except PenstockError as error:
            raise error.with_traceback(None) from None

    return called


def plain_each(call: Callable[P, Iterator[T]]) -> Callable[P, Iterator[T]]:
    """Do the same for an iterator."""

    @wraps(call)
    def called(*args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        try:
            yield from call(*args, **kwargs)
        except PenstockError as error:
            raise error.with_traceback(None) from None

    return called


def told_by(error: BaseException) -> PenstockError | None:
    """Return the error of ours inside an error of Spark's, if any; its text survives, its fields do not."""
    found = _OURS.search(str(error))
    if found is None:
        return None
    kind = getattr(errors, found[1], PenstockError)
    told: PenstockError = kind.__new__(kind)
    Exception.__init__(told, found[2].strip())
    return told


def in_one_line(error: PySparkException) -> PenstockError:
    """Return an error of Spark's as one line for users: our message, or its first line."""
    lines = (line.partition(" SQLSTATE:")[0].strip() for line in str(error).splitlines())
    said = f"Spark: {next(filter(None, lines), type(error).__name__)}"
    kind = (
        BadArgument if isinstance(error, AnalysisException) else PenstockError
    )  # an AnalysisException comes from the user's SQL
    return told_by(error) or kind(said)
