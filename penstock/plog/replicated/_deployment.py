"""The id of a deployment: which oracle the owners of a partition agree by.

Epochs are counted by the oracle. Owners of two deployments, each with an oracle of its own, that were given the same
plog servers would fence each other for ever. So an owner names the id in its oracle, and a server takes owners of the
deployment that came first, and of no other.
"""

from __future__ import annotations

import secrets
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from penstock.errors import CasConflict, CpoCorrupt

if TYPE_CHECKING:
    from penstock.cpo import Cpo

__all__ = ["DEPLOYMENT_SIZE", "deployment_of"]

DEPLOYMENT_SIZE: Final = 16
_KEY: Final = "deployment"


def deployment_of(cpo: Cpo) -> bytes:
    """Return the id of the deployment that an oracle belongs to; the first owner of all makes it."""
    entry = cpo.get(_KEY)
    if entry is None:
        with suppress(CasConflict):  # another owner was faster
            cpo.cas(_KEY, secrets.token_bytes(DEPLOYMENT_SIZE), expected=0)
        entry = cpo.get(_KEY)
    if entry is None or len(entry.value) != DEPLOYMENT_SIZE:
        raise CpoCorrupt(cpo.where(), offset=None, reason="the id of the deployment is invalid, or was deleted")
    return entry.value
