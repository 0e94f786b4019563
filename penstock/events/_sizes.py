"""How large messages of FTN18 may be: one byte above the limit ends a reference client.

Every message has at most 64 KiB, but the answer to pollEvents and the pushed events of version 1.1, which have 8 MiB.
"""

from __future__ import annotations

from typing import Final

__all__ = ["AROUND", "EVENTS_MAX", "EVENT_SIZE_MAX", "LARGE_MESSAGE", "SMALL_MESSAGE"]

SMALL_MESSAGE: Final = 65_536
LARGE_MESSAGE: Final = 8 << 20
EVENTS_MAX: Final = 1_000
AROUND: Final = 208
"""The bytes of a message around its events: the function, the sequence, the id of the request, a signature."""
EVENT_SIZE_MAX: Final = SMALL_MESSAGE - 256
"""The largest event that every call can return; it is stored, so it does not change with what is around it."""
assert SMALL_MESSAGE - EVENT_SIZE_MAX > AROUND, "with its id and the names of its fields"
