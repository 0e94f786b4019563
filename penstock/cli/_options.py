"""Options that several commands share, and errors in the words of the command line: a message names an option."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Final

import typer
from typer.core import TyperCommand

from penstock.errors import BadArgument

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["CommandWithOptions", "option_names", "options_of"]

_ARGUMENT: Final = re.compile(r"invalid (\w+)\b")


class CommandWithOptions(TyperCommand):
    """A command with more ``options`` than its function has parameters; :meth:`take` is given their values."""

    options: ClassVar[Sequence[Any]]  # of the kind that Typer makes of parameters, for which it has no public name

    def __init__(self, name: str | None, *, params: list[Any] | None = None, **settings: Any) -> None:  # noqa: ANN401
        super().__init__(name, params=[*(params or []), *self.options], **settings)

    def invoke(self, ctx: Any) -> object:  # noqa: ANN401 - a typer.Context, or the class that it is derived from
        """Remove the options, then run the function."""
        self.take(ctx, {option.name: ctx.params.pop(option.name) for option in self.options})
        return super().invoke(ctx)

    def take(self, context: typer.Context, given: dict[str, Any]) -> None:
        """Note the values that the options have; None if one is not given."""
        raise NotImplementedError


def options_of(function: Callable[..., object]) -> Sequence[Any]:
    """Return the options that Typer makes of the parameters of a function, or of the fields of a dataclass."""
    app = typer.Typer(add_completion=False)
    app.command()(function)
    return typer.main.get_command(app).params


@contextmanager
def option_names(**names: str) -> Iterator[None]:
    """Let a ``BadArgument`` raised in the block name an option instead of the Python argument that took its value.

    Such an error begins like this: ``invalid size_bytes 0: use a whole number of at least 1``.
    """
    try:
        yield
    except BadArgument as error:
        argument = _ARGUMENT.match(str(error))
        if argument is None or argument[1] not in names:
            raise
        raise BadArgument(f"invalid {names[argument[1]]}{str(error)[argument.end() :]}") from error
