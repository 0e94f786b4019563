"""The command line: one file here is one command.

``penstock/cli/tail.py`` is ``penstock tail``: it has a function ``tail`` whose docstring is the help, an ``EXAMPLE``
that the help shows and a test runs, and a ``COMMAND`` if it needs a command class of its own.
``penstock/cli/stream/create.py`` is ``penstock stream create``, and a file is named ``import_`` where Python has the
word for itself. Putting the file here is all it takes to add the command. A start imports the file of the command that
is called, or all of them for an overview; so they import what is heavy inside their functions.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import re
import sys
from keyword import iskeyword
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from penstock._version import __version__
from penstock.cli._credentials import StoreCommand, opens_store
from penstock.errors import BadArgument, PenstockError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType
    from typing import NoReturn


__all__ = ["command_module", "command_names", "main"]

_SECTIONS: Final = {
    "Streams and their events": (
        "stream",
        "top",
        "write",
        "tail",
        "read",
        "cat",
        "watermarks",
        "group",
        "event",
        "copy",
        "backup",
        "restore",
        "check",
        "maintain",
    ),
    "Repositories": ("repo",),
    "Jobs on Spark": ("archive", "aggregate", "windows"),
    "The server": ("serve", "dev", "user", "cluster", "plog-server"),
    "Penstock itself": ("demo", "doctor", "bench", "completion"),
}
_REST: Final = "Commands"
_COMPLETE: Final = "_PENSTOCK_COMPLETE"  # set by the script that `penstock completion` prints


def main() -> None:
    """Run the command line; exit with 0 for success, 1 for failure, 2 for incorrect usage."""
    _open_missing_files()
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # we report errors ourselves, once
    if _COMPLETE in os.environ:
        _prepare_completion()
    try:
        try:
            code = _app()(prog_name="penstock", standalone_mode=False)
        finally:
            sys.stdout.flush()  # a reader that has closed the pipe is noticed here, not while Python ends
        sys.exit(code or 0)
    except typer.Abort:
        _fail(PenstockError("aborted"), code=1)
    except TyperException as error:
        _fail_usage(error)
    except BrokenPipeError:
        _stop_printing()
        sys.exit(1)
    except ModuleNotFoundError as error:
        _fail(_missing(error), code=1)
    except BadArgument as error:
        _fail(error, code=2)
    except (PenstockError, OSError) as error:
        _fail(error, code=1)


def _open_missing_files() -> None:
    """Open /dev/null for standard files that are closed, so that no file of a store gets their descriptors."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115 - open to the end


def _prepare_completion() -> None:
    """Register the completion classes of all shells."""
    from typer.completion import completion_init  # type: ignore[attr-defined]

    completion_init()


def command_names() -> list[str]:
    """Return the name of every command, in order: ``doctor``, ``stream create``; a file ``mac_key`` is ``mac-key``."""
    names = _names_in(__path__[0], "")
    return sorted(name.rstrip("_").replace("_", "-") for name in names)


def _names_in(folder: str, group: str) -> Iterator[str]:
    for module in pkgutil.iter_modules([folder]):
        if module.ispkg:
            yield from _names_in(f"{folder}/{module.name}", f"{group}{module.name} ")
        elif not module.name.startswith("_"):
            yield group + module.name


def command_module(name: str) -> tuple[ModuleType, Callable[..., object]]:
    """Return the module of a command, and the function in it that has the module's name."""
    group, _, last = name.replace("-", "_").rpartition(" ")
    last = f"{last}_" if iskeyword(last) else last
    module = importlib.import_module(".".join([__name__, *group.split(), last]))
    return module, getattr(module, last)


def _app() -> typer.Typer:
    app = _typer()
    app.callback()(_penstock)
    groups = {"": app}
    for name in _called(sys.argv[1:]):
        group, _, command = name.rpartition(" ")
        _add(_group(groups, group), command, *command_module(name))
    return app


def _called(arguments: list[str]) -> list[str]:
    """Return the name of the command that is called; of all commands if it is none of them, since each takes time."""
    names = command_names()
    return [name for name in names if arguments[: len(name.split())] == name.split()] or names


def _group(groups: dict[str, typer.Typer], name: str) -> typer.Typer:
    if name not in groups:
        groups[name] = _typer()
        above, _, last = name.rpartition(" ")
        about = importlib.import_module(".".join([__name__, *name.split()])).__doc__
        _group(groups, above).add_typer(groups[name], name=last, help=about)
    return groups[name]


def _typer() -> typer.Typer:
    # Markup off: an example may contain brackets. Plain tracebacks: an error that is not a PenstockError is a bug.
    return typer.Typer(
        cls=_Group,
        add_completion=False,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


def _add(app: typer.Typer, name: str, module: ModuleType, command: Callable[..., object]) -> None:
    # The \b keeps the help from wrapping the line, so that it can be copied.
    kind = getattr(module, "COMMAND", StoreCommand if opens_store(command) else None)
    app.command(name, cls=kind, epilog=f"\b\nExample: {module.EXAMPLE}")(command)


_USAGE_WORDS: Final = (
    (re.compile(r"^Invalid value for '(.*?)': (Value error, )?"), r"invalid \1: "),
    (re.compile(r"\bInput should be"), "it should be"),
    (re.compile(r"\.$"), ""),
)
_OTHER_NAMES: Final = {
    "add": ("create",),
    "delete": ("rm",),
    "describe": ("show", "ls"),
    "info": ("show", "ls"),
    "list": ("ls",),
    "new": ("create", "add"),
    "remove": ("rm",),
    "show": ("ls", "log"),
}
"""What other programs call our commands; the first one that a group has is named."""
_SENTENCE_MAX: Final = 1000  # characters of a first sentence: no help is cut off


class _Group(TyperGroup):
    """A command group that lists its commands by subject, and knows what other programs call them."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 - Typer has no public names
        """Find a command; for one that has another name here, say which."""
        ours = [name for name in _OTHER_NAMES.get(args[0], ()) if name in self.commands]
        if args[0] not in self.commands and ours:
            ctx.fail(f"No such command {args[0]!r}. Did you mean {ours[0]!r}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - Typer has no public names
        """Write one list per section; the commands of a subject have none."""
        sections = _SECTIONS if ctx.parent is None else {}
        placed = {name for names in sections.values() for name in names}
        rest = tuple(name for name in self.list_commands(ctx) if name not in placed)
        for title, names in {**sections, _REST: rest}.items():
            rows = [
                (name, self.commands[name].get_short_help_str(_SENTENCE_MAX)) for name in names if name in self.commands
            ]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"penstock {__version__}")
        raise typer.Exit


def _penstock(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Penstock: a stream store for Python and Spark."""


def _missing(error: ModuleNotFoundError) -> Exception:
    """Return an error that says how to install a missing package; raise the error again if it is a bug of ours."""
    from penstock.cli._requirements import extra_with

    extra = extra_with(error.name or "")
    if extra is None:
        raise error
    return PenstockError(
        f"this needs {error.name}, which is missing: in a clone of Penstock, run pip install '.[{extra}]'"
    )


def _fail(error: Exception, *, code: int) -> NoReturn:
    parts = [error.filename, error.strerror] if isinstance(error, OSError) else [error]
    if isinstance(error, PermissionError):
        parts.append("use a file or folder that you may read and write, or run the command as its owner")
    typer.echo(f"penstock: {': '.join(str(part) for part in parts if part is not None)}", err=True)
    sys.exit(code)


def _fail_usage(error: Any) -> NoReturn:  # noqa: ANN401 - Typer has no public name for it
    """Report incorrect usage in one line, as all errors are; a group without a command has its help instead."""
    message = " ".join(error.format_message().split())
    if message.startswith("Usage:"):
        typer.echo(error.format_message(), err=True)
        sys.exit(error.exit_code)
    for words, ours in _USAGE_WORDS:
        message = words.sub(ours, message)
    command = _called_path() if error.ctx is None else error.ctx.command_path
    _fail(PenstockError(f"{message[0].lower()}{message[1:]} (see {command} --help)"), code=error.exit_code)


def _called_path() -> str:
    """Return the command that was called: the parser of options does not say in which one it found a mistake."""
    names = _called(sys.argv[1:])
    return f"penstock {names[0]}" if len(names) == 1 else "penstock"


def _stop_printing() -> None:
    """Discard remaining output, so that Python does not report an error when it exits."""
    with Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
