"""A process that owns a folder for others, which may be killed at any time: as long as they have transactions open.

``python -m penstock.server._keeper FOLDER SECONDS`` says when it owns the folder, or ends at once if somebody else
does. It ends when nobody had a transaction open for so many seconds.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Final

from penstock.errors import StoreLocked
from penstock.server._share import open_owned
from penstock.stream import PASS_S

_LOOKS: Final = 10


def main(folder: str, seconds: str) -> None:
    """Own a folder."""
    try:
        store = open_owned(Path(folder), pass_s=PASS_S)
    except StoreLocked:
        return
    with store:
        os.write(sys.stdout.fileno(), b"mine\n")
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # who has started us may end
        idle, never = 0, threading.Event()
        while idle < _LOOKS:
            never.wait(float(seconds) / _LOOKS)
            idle = 0 if store.transactions else idle + 1


if __name__ == "__main__":
    main(*sys.argv[1:])
