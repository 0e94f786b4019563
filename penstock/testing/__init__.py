"""Stand-ins for the ports: a clock, randomness and disks that a test controls.

``MemoryDisk`` keeps files in memory. ``RecordingDisk`` does so too, and produces every state of the disk that a power
loss might leave. ``FaultyDisk`` adds errors and short writes to any disk. ``MemoryObjects`` is a bucket in memory;
``FaultyObjects`` adds lost calls, lost answers and late listings to any bucket. ``FlakyGroups`` takes any plogs for
plogs on several groups of servers, and lets groups fail. None of them sleeps or touches a file.

>>> from penstock.testing import Fault, FaultyDisk, MemoryDisk
>>> disk = FaultyDisk(MemoryDisk())
>>> disk.fail(Fault.ENOSPC, on="pwritev", call=3, name="journal-0")
"""

from penstock.testing._clock import ManualClock, SeededRandom
from penstock.testing._crash import CrashState
from penstock.testing._faulty import Fault, FaultyDisk
from penstock.testing._faulty_objects import FaultyObjects, ObjectFault
from penstock.testing._flaky_groups import FlakyGroups
from penstock.testing._memory import MemoryDisk
from penstock.testing._objects import MemoryObjects
from penstock.testing._recording import RecordingDisk

__all__ = [
    "CrashState",
    "Fault",
    "FaultyDisk",
    "FaultyObjects",
    "FlakyGroups",
    "ManualClock",
    "MemoryDisk",
    "MemoryObjects",
    "ObjectFault",
    "RecordingDisk",
    "SeededRandom",
]
