"""The file that a command writes: it appears under its name when it is complete, and an older one stays until then."""

from __future__ import annotations

import errno
import os
import secrets
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

__all__ = ["is_standard_output", "output_file"]

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def is_standard_output(path: Path) -> bool:
    """Whether a path, such as /dev/stdout, leads to what the command prints to."""
    with suppress(OSError, ValueError):  # no such file yet, or an output without a descriptor
        return os.path.samestat(path.stat(), os.fstat(sys.stdout.fileno()))
    return False


@contextmanager
def output_file(path: Path) -> Iterator[BinaryIO]:
    """Give a file that takes the place of ``path`` when it is complete.

    Pipes, devices and open files of the shell, such as /dev/stdout, are written to as they are. A link stays one. An
    error names the file, which those of a full disk do not.
    """
    target = Path(os.path.realpath(path))
    unfinished = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        if is_standard_output(path):
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
        elif _is_open_file(path) or (target.exists() and not target.is_file()):
            with path.open("ab") as file:
                yield file
        else:
            with unfinished.open("xb") as file:
                yield file
            unfinished.replace(target)
    except BaseException as error:
        with suppress(OSError):
            unfinished.unlink()
        if isinstance(error, OSError) and (error.filename == str(unfinished) or error.errno in _FULL):
            error.filename = str(path)
        raise


def _is_open_file(path: Path) -> bool:
    """Whether a path names a descriptor, as /dev/fd/3 does: another program has opened the file."""
    return os.path.realpath(path.parent).startswith("/proc/") or (
        path.is_symlink() and str(path.readlink()).startswith("/proc/")
    )
