"""Ctrl-C, or a signal handler that raises, at any instruction."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.sampling import EXPLORES

if TYPE_CHECKING:
    from tests.explore.conftest import Lives

pytestmark = pytest.mark.long

LIFE: Final = Path(__file__).with_name("interrupted_life.py")
INTERRUPTS: Final = 250 if EXPLORES else 60  # a life


@pytest.mark.parametrize("how", ["ctrl-c", "timeout"])
@pytest.mark.parametrize("kind", ["owned", "served"])
def test_interrupts_leave_no_lock_held_and_nothing_acknowledged_lost(
    kind: str, how: str, lives: Lives, tmp_path: Path
) -> None:
    """After Ctrl-C in a notebook, or an alarm, a user goes on with the same store: it neither hangs nor forgets."""
    for number, random in enumerate(lives(sampled=1, explored=20)):
        seed = random.getrandbits(32)
        args = [sys.executable, str(LIFE), str(tmp_path / str(number)), str(seed), str(INTERRUPTS), kind, how]
        ended = subprocess.run(args, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stderr
