"""The root of the error tree, and the error for invalid arguments."""

from __future__ import annotations

__all__ = ["BadArgument", "PenstockError"]


class PenstockError(Exception):
    """The root of all errors raised on purpose."""

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the message and the attributes: our constructors do not take the message, as pickle expects."""
        return _restore, (type(self), self.args, self.__dict__)


def _restore(kind: type[PenstockError], args: tuple[object, ...], attributes: dict[str, object]) -> PenstockError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(attributes)
    return error


class BadArgument(PenstockError, ValueError):
    """The call itself is wrong; nothing was changed."""
