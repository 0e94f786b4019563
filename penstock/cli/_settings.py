"""The settings of a server as options of a command, generated from their definition."""

from __future__ import annotations

from dataclasses import make_dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, get_args, get_type_hints

import typer

from penstock.cli._options import CommandWithOptions, options_of
from penstock.server import Config

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["settings_command"]

_KINDS: Final = get_type_hints(Config)
_ANNOTATED: Final = get_type_hints(Config, include_extras=True)


def settings_command(*names: str) -> type[CommandWithOptions]:
    """Return the class of a command with an option for each setting; its function finds their values in the context."""
    settings = make_dataclass("Settings", [(name, _option(name), None) for name in names], kw_only=True)

    class SettingsCommand(CommandWithOptions):
        options: ClassVar[Sequence[Any]] = options_of(settings)

        def take(self, context: typer.Context, given: dict[str, Any]) -> None:
            context.obj = given

    return SettingsCommand


def _option(name: str) -> Any:  # noqa: ANN401 - a type with an annotation
    kind: Any = _KINDS[name]
    _, *metas = get_args(_ANNOTATED[name])
    titles = [meta.title for meta in metas if meta.title]
    option = typer.Option(
        *([f"--{name.replace('_', '-')}"] if kind is bool else []),  # else it would have an opposite
        metavar=titles[0] if titles else None,
        help=metas[-1].description,
    )
    return Annotated[kind | None, option]
