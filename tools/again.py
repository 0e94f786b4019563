"""Run the tests that have failed in ``make test`` once more, alone, and say which of them pass then.

Four processes run tests on two cores, with servers, browsers and Spark beside them, so a test that waits for something
may wait too long there. CPython's own tests do the same. A test that fails again has failed; so have more than a few.
What passes alone is named at the end: it is a defect of the test, or a rare one of Penstock, to be looked into.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

FAILED = Path(__file__).resolve().parent.parent / ".pytest_cache/v/cache/lastfailed"
COUNT_MAX = 5


def main() -> int:
    """Return 0 if all of them pass."""
    failed = sorted(json.loads(FAILED.read_text())) if FAILED.exists() else []
    if not 0 < len(failed) <= COUNT_MAX:
        print(f"make test: {len(failed)} tests failed; up to {COUNT_MAX} would have been run again, alone")
        return 1
    print(f"make test: {len(failed)} failed beside the others; once more, alone")
    code = subprocess.run([sys.executable, "-m", "pytest", "-q", *failed], check=False).returncode
    if code == 0:
        print("make test: these failed beside the others and passed alone; please look into them:", *failed, sep="\n  ")
    return code


if __name__ == "__main__":
    sys.exit(main())
