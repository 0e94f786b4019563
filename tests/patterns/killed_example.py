"""Runs an example in processes of its own, which are killed by kill -9 before one line after the other.

A process counts the lines of some functions that it has run, each once, beginning at a random moment, and kills itself
before the line that it was told. So the kills are spread over all lines where they may matter, wherever the example is
in its work.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import runpy
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock import patterns
from penstock.events import outbox
from tests.sampling import EXPLORES

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from types import FrameType

EXAMPLES: Final = Path(__file__).parents[2] / "examples" / "patterns"
_OURS: Final = (str(Path(patterns.__file__).parent), outbox.__file__, str(EXAMPLES))
_PRELOADED: Final = ("penstock.embedded", "penstock.patterns._latest", "penstock.patterns._queue")


def run_with_kills(
    name: str,
    folder: Path,
    *functions: str,
    lines: int,
    stride: int = 3,
    later: int = 300,
    check: Callable[[], object] = lambda: None,
) -> int:
    """Kill an example before every ``stride``-th of the first ``lines`` lines of some functions; return how often.

    It begins to count after up to ``later`` of these lines. At the end it runs undisturbed. ``check`` is called after
    each run.
    """
    dice, killed = random.Random(name), 0
    for line in range(1, lines + 1, 1 if EXPLORES else stride):
        killed += _run(name, folder, functions, line, dice.randrange(later)) == -signal.SIGKILL
        check()
    assert killed >= lines / stride / 2, f"only {killed} runs were killed before they ended"
    assert _run(name, folder, (), 0, 0) == 0
    return killed


def _run(name: str, folder: Path, functions: Collection[str], line: int, skipped: int) -> int:
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload([__name__, *_PRELOADED])
    process = processes.Process(target=_example, args=(name, str(folder), functions, line, skipped))
    process.start()
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL), f"{name} ended with {process.exitcode}"
    return process.exitcode


def _example(name: str, folder: str, functions: Collection[str], line: int, skipped: int) -> None:
    seen, count = set[tuple[str, int]](), 0

    def traced(frame: FrameType, event: str, _: object) -> object:
        nonlocal count
        if not frame.f_code.co_filename.startswith(_OURS):
            return None
        if event == "line" and frame.f_code.co_name in functions:
            count += 1
            if count > skipped:
                seen.add((frame.f_code.co_filename, frame.f_lineno))
            if len(seen) == line:
                os.kill(os.getpid(), signal.SIGKILL)
        return traced

    os.chdir(folder)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
    if functions:
        sys.settrace(traced)  # type: ignore[arg-type]
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    sys.settrace(None)
