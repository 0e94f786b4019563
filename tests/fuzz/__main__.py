"""``make fuzz``: feed every decoder with hostile bytes, in rounds until stopped, or so many inputs each.

What libFuzzer learns is kept in ``.fuzz``, and used the next time. An input that a decoder fails at is printed with its
path; with the fix it becomes a line in ``tests/fuzz/corpus``, which ``make test`` runs.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from hashlib import sha1
from itertools import count
from pathlib import Path
from typing import Final

from tests.fuzz.decoders import DECODERS, inputs_of

WORK: Final = Path(".fuzz")
ROUND: Final = 100_000
OPTIONS: Final = ("-max_len=4096", "-timeout=20", "-rss_limit_mb=1024", "-verbosity=0", "-print_final_stats=1")


def main(names: list[str]) -> int:
    """Run the decoders of these names, or all; return how many have failed."""
    inputs, failed = int(os.environ.get("FUZZ_INPUTS", "0")), set[str]()
    for _ in [0] if inputs else count():
        for name in names or DECODERS:
            if name not in failed and not fuzz(name, inputs or ROUND):
                failed.add(name)
    return len(failed)


def fuzz(name: str, inputs: int) -> bool:
    """Run one decoder; return whether it refused all inputs as it should."""
    work, found = WORK / name, WORK / f"found-{name}-"
    work.mkdir(parents=True, exist_ok=True)
    for seed in inputs_of(name):
        work.joinpath(sha1(seed, usedforsecurity=False).hexdigest()).write_bytes(seed)
    begun = time.monotonic()
    options = [f"-runs={inputs}", f"-artifact_prefix={found}", *OPTIONS]
    command = [sys.executable, "-m", "tests.fuzz.target", name, *options, str(work)]
    run = subprocess.run(command, check=False, capture_output=True, text=True, errors="replace")
    seconds = time.monotonic() - begun
    print(f"{name}: {inputs} inputs in {seconds:.0f} s" if not run.returncode else f"{name}: FAILED", flush=True)  # noqa: T201
    if run.returncode:
        print(run.stderr[-4000:], flush=True)  # noqa: T201
    return run.returncode == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
