"""The access probe: a file next to the plogs, by which a client finds out whether it has direct access to them.

Neither side trusts the other. The client sends a random challenge, and the server writes a digest of it into a file
whose name follows from the session. The client computes both itself and looks for nothing else, in a folder that the
server names. So the server cannot ask it about any file but this one, and the client cannot have bytes of its choice
written. In a container, or on another machine, the same path is another folder, maybe a copy of this one that has
changed since; but a file with the answer to a challenge that is a moment old is in this folder only.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

__all__ = ["ACCESS_PROBE_PREFIX", "CHALLENGE_SIZE", "probe_content", "probe_name"]

ACCESS_PROBE_PREFIX: Final = "access-probe-"
CHALLENGE_SIZE: Final = 32


def probe_name(session_id: str) -> str:
    """Return the name of the probe of a session, which has one at most."""
    return ACCESS_PROBE_PREFIX + blake2b(session_id.encode(), digest_size=16).hexdigest()


def probe_content(session_id: str, challenge: bytes) -> bytes:
    """Return the bytes that answer a challenge."""
    assert len(challenge) == CHALLENGE_SIZE
    return blake2b(challenge + session_id.encode(), digest_size=32).digest()
