"""Signals that end a command in order: what it has started is ended, and its folders are removed."""

from __future__ import annotations

import signal
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["says_when_interrupted", "signals_exit"]


@contextmanager
def signals_exit() -> Iterator[None]:
    """Have SIGTERM and SIGHUP end the block like Ctrl-C."""
    before = {number: signal.signal(number, _exit) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _exit(number: int, _: object) -> None:
    sys.exit(128 + number)


@contextmanager
def says_when_interrupted(state: str) -> Iterator[None]:
    """Say in one line what a Ctrl-C in the block has left behind."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo(f"penstock: interrupted: {state}", err=True)
        raise typer.Exit(128 + signal.SIGINT) from None
