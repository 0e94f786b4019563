"""The world of one run: the servers, the oracle, the network, and what was promised."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from penstock.testing.simulate._kernel import Kernel
from penstock.testing.simulate._network import SimNetwork
from penstock.testing.simulate._oracle import SimOracle
from penstock.testing.simulate._owner import CLUSTER, SimOwner
from penstock.testing.simulate._server import SimServer
from penstock.testing.simulate._truth import Truth

if TYPE_CHECKING:
    from penstock.errors import PenstockError

__all__ = ["World"]


class World(ABC):
    """Groups of three servers, and the owners of one partition, one after another or at the same time."""

    def __init__(self, seed: int, *, groups: int) -> None:
        self.kernel = Kernel(seed)
        names = [f"g{number}" for number in range(groups)]
        self.groups = {name: [SimServer(self.kernel, CLUSTER, name, place) for place in range(3)] for name in names}
        self.servers = [server for servers in self.groups.values() for server in servers]
        self.oracle = SimOracle(self.kernel)
        self.truth = Truth(self.groups, self.oracle.rows)
        self.network = SimNetwork(self.kernel)
        self.owners: list[SimOwner] = []

    def new_owner(self) -> SimOwner:
        """Start an owner with the next epoch."""
        owner = SimOwner(self, len(self.owners) + 1, self.oracle.acquire())
        self.owners.append(owner)
        return owner

    @abstractmethod
    def start_owner(self) -> SimOwner:
        """Start another owner, whatever the owners before are doing."""

    @abstractmethod
    def owner_ended(self) -> None:
        """Start another owner after a while, if none is left."""

    @abstractmethod
    def may_retry(self, owner: SimOwner, error: PenstockError) -> bool:
        """Return whether an owner goes on after an error; end it if not."""
