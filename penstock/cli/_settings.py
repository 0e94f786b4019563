"""The settings of a server as options of a command, generated from their definition."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Annotated, Any, Final, get_args, get_type_hints

import typer

from penstock.server import Config

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["with_settings"]

_KINDS: Final = get_type_hints(Config)
_ANNOTATED: Final = get_type_hints(Config, include_extras=True)


def with_settings(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add an option for each setting; the command receives them as keyword arguments, None if not given."""

    def add(command: Callable[..., None]) -> Callable[..., None]:
        known = inspect.signature(command)
        own = [one for one in known.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
        command.__signature__ = known.replace(parameters=[*own, *map(_option, names)])  # type: ignore[attr-defined]
        return command

    return add


def _option(name: str) -> inspect.Parameter:
    kind: Any = _KINDS[name]
    _, *metas = get_args(_ANNOTATED[name])
    titles = [meta.title for meta in metas if meta.title]
    option = typer.Option(
        *([f"--{name.replace('_', '-')}"] if kind is bool else []),  # else it would have an opposite
        metavar=titles[0] if titles else None,
        help=metas[-1].description,
    )
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, option]
    )
