"""The reference of the command line, from the commands themselves, as a page for the documentation."""

from __future__ import annotations

import io
import os
import sys
from contextlib import redirect_stdout, suppress
from unittest.mock import patch

from penstock.cli import command_names, main

__all__ = ["command_page"]

_WIDTH = "100"


def command_page() -> str:
    """Return the help of every command, as reStructuredText."""
    parts = ["Commands\n========\n\nThis is what ``--help`` prints for each command.\n"]
    for name in command_names():
        words = name.split()
        title = f"``penstock {name}``"
        body = "\n".join(f"   {line}".rstrip() for line in _help_of(words).strip().splitlines())
        parts.append(f"{title}\n{'-' * len(title)}\n\n.. code-block:: text\n\n{body}\n")
    return "\n".join(parts)


def _help_of(words: list[str]) -> str:
    printed = io.StringIO()
    settings = {"COLUMNS": _WIDTH, "TERMINAL_WIDTH": _WIDTH, "TERM": "dumb", "NO_COLOR": "1"}
    with (
        patch.object(sys, "argv", ["penstock", *words, "--help"]),
        patch.dict(os.environ, settings),
        redirect_stdout(printed),
        suppress(SystemExit),
    ):
        main()
    return printed.getvalue()
