"""What goes wrong, when and for how long, chosen by the seed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.testing.simulate._owner import SimOwner
    from penstock.testing.simulate._server import SimServer
    from penstock.testing.simulate._storage import SavedDisk
    from penstock.testing.simulate._world import World

__all__ = ["Faults"]

_DURATIONS_S: Final = (0.05, 0.5, 3.0)


class Faults:
    """The faults of one run; a fault that takes time ends by itself, or when all faults are stopped."""

    def __init__(self, world: World, *, sets_back: bool = False) -> None:
        self._world = world
        self._random = world.kernel.random
        self._harmed = {group: self._random.choice(servers) for group, servers in world.groups.items()}
        self._ends: list[Callable[[], None]] = []
        self.is_over = False
        self._kinds: list[tuple[int, Callable[[], None]]] = [
            (4, self._crash_server),
            (3, self._slow_disk),
            (1, self._full_disk),
            (1, self._fail_disk),
            (4, self._partition),
            (3, self._cut_link),
            (2, self._lose_folder),
            (2, self._damage_replica),
            (2, self._damage_end),
            (3, self._pause_owner),
            (2, self._kill_owner),
            (3, self._take_over),
            (1, self._clock),
            (2, self._oracle_away),
            (2, self._oracle_unknown),
            (1, self._oracle_slow),
            (2, self._bad_network),
        ]
        self._saved: dict[str, SavedDisk] = {}  # by the name of the server
        if sets_back:
            self._kinds += [(3, self._save_folder), (3, self._set_back)]

    def begin(self) -> None:
        """Let things go wrong from now on, at random times."""
        self._schedule()

    def _schedule(self) -> None:
        world = self._world
        pause = self._random.choice((0.01, 0.1, 0.5, 1.5)) * self._random.random()

        def strike() -> None:
            if not self.is_over:
                weights = [weight for weight, _ in self._kinds]
                self._random.choices([fault for _, fault in self._kinds], weights)[0]()
                self._schedule()

        world.kernel.at(pause, world.kernel.world, strike)

    def stop(self) -> None:
        """End all faults; servers run, links work, nobody is paused."""
        self.is_over = True
        ends, self._ends = self._ends, []
        for end in ends:
            end()
        world = self._world
        for server in world.servers:
            server.storage.is_full = False
            if server.storage.is_failed:
                server.crash()
            server.start()
            server.slowness = 1.0

    def _for_a_while(self, end: Callable[[], None]) -> None:
        done = False

        def once() -> None:
            nonlocal done
            if not done:
                done = True
                end()

        self._ends.append(once)
        world = self._world
        world.kernel.at(self._random.choice(_DURATIONS_S) * self._random.random(), world.kernel.world, once)

    def _server(self) -> SimServer:
        return self._random.choice(self._world.servers)

    def _owner(self) -> SimOwner | None:
        alive = [owner for owner in self._world.owners if owner.process.is_alive]
        return self._random.choice(alive) if alive else None

    def _crash_server(self) -> None:
        server = self._server()
        server.crash()
        self._for_a_while(server.start)

    def _slow_disk(self) -> None:
        server = self._server()
        server.slowness = self._random.choice((10.0, 100.0, 3000.0))
        self._for_a_while(lambda: setattr(server, "slowness", 1.0))

    def _full_disk(self) -> None:
        storage = self._server().storage
        storage.is_full = True
        self._for_a_while(lambda: setattr(storage, "is_full", False))

    def _fail_disk(self) -> None:
        server = self._server()
        server.storage.is_failed = True

        def restart() -> None:
            server.crash()
            server.start()

        self._for_a_while(restart)

    def _partition(self) -> None:
        owner, partitions = self._owner(), self._world.network.partitions
        if owner is None:
            return
        cut = [(owner.process.name, server.name) for server in self._world.servers if self._random.random() < 0.4]
        partitions.update(dict.fromkeys(cut))

        def heal() -> None:
            for pair in cut:
                partitions.pop(pair, None)

        self._for_a_while(heal)

    def _cut_link(self) -> None:
        owner, server = self._owner(), self._server()
        if owner is not None and not owner.process.is_paused:
            link = owner.link(server.group, server.place)
            if link.is_up:
                link.cut()

    def _may_harm(self, server: SimServer, uid: bytes) -> bool:
        """Return whether the other servers have all that a replica has, so that its loss is no loss of data."""
        others = [other for other in self._world.groups[server.group] if other is not server]
        length = server.storage.replicas_by_uid[uid].written
        for other in others:
            replica = other.storage.replicas_by_uid.get(uid)
            if replica is None or replica.damage or replica.length < length:
                return False
        return True

    def _lose_folder(self) -> None:
        server = self._harmed[self._random.choice(list(self._world.groups))]
        uids = list(server.storage.replicas_by_uid)
        if all(self._may_harm(server, uid) for uid in uids):
            self._world.truth.harmed.update(dict.fromkeys((server.name, uid) for uid in uids))
            server.lose_folder()

    def _save_folder(self) -> None:
        server = self._harmed[self._random.choice(list(self._world.groups))]
        server.crash()
        self._saved[server.name] = server.storage.saved()
        server.start()

    def _set_back(self) -> None:
        server = self._harmed[self._random.choice(list(self._world.groups))]
        saved, uids = self._saved.get(server.name), list(server.storage.replicas_by_uid)
        if saved is not None and all(self._may_harm(server, uid) for uid in uids):
            self._world.truth.note_set_back(server, [*uids, *saved.replicas])
            server.set_back(saved)

    def _damage_replica(self) -> None:
        server = self._harmed[self._random.choice(list(self._world.groups))]
        uids = list(server.storage.replicas_by_uid)
        if not uids:
            return
        uid = self._random.choice(uids)
        if self._may_harm(server, uid):
            self._world.truth.harmed[server.name, uid] = None
            replica = server.storage.replicas_by_uid[uid]
            replica.damage = self._random.choice(("head", "body" if replica.length else "head"))

    def _damage_end(self) -> None:
        """Crash a server, and damage the last append of an open replica: it is taken for one that was not finished."""
        server = self._harmed[self._random.choice(list(self._world.groups))]
        replicas = server.storage.replicas_by_uid
        uids = [
            uid for uid, replica in replicas.items() if replica.synced and not replica.is_sealed and not replica.damage
        ]
        if uids and self._may_harm(server, uid := self._random.choice(uids)):
            self._world.truth.harmed[server.name, uid] = None
            server.crash()
            replicas[uid].cut_last()
            server.start()

    def _pause_owner(self) -> None:
        owner, kernel = self._owner(), self._world.kernel
        if owner is not None and not owner.process.is_paused:
            owner.process.is_paused = True
            if self._random.random() < 0.7:
                self._world.start_owner()
            self._for_a_while(lambda: kernel.wake(owner.process))

    def _kill_owner(self) -> None:
        owner = self._owner()
        if owner is not None:
            owner.end("killed")

    def _take_over(self) -> None:
        self._world.start_owner()

    def _clock(self) -> None:
        owner = self._owner()
        if owner is not None:
            owner.clock_rate = self._random.choice((0.3, 1.0, 3.0))
            owner.clock_jump += self._random.choice((-100.0, 0.0, 1.0, 100.0))

    def _oracle_away(self) -> None:
        oracle = self._world.oracle
        oracle.is_away = True
        self._for_a_while(lambda: setattr(oracle, "is_away", False))

    def _oracle_unknown(self) -> None:
        oracle = self._world.oracle
        oracle.unknown_share = 0.5
        self._for_a_while(lambda: setattr(oracle, "unknown_share", 0.0))

    def _oracle_slow(self) -> None:
        oracle = self._world.oracle
        oracle.slowness = self._random.choice((20.0, 1000.0))
        self._for_a_while(lambda: setattr(oracle, "slowness", 1.0))

    def _bad_network(self) -> None:
        network, share = self._world.network, self._random.choice((0.02, 0.1, 0.3))
        kind = self._random.choice(("lost_share", "doubled_share", "late_share"))
        setattr(network, kind, share)
        self._for_a_while(lambda: setattr(network, kind, 0.0))
