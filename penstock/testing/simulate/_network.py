"""The network: messages are lost, doubled, delayed and overtake each other; links are cut and partitioned."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.plog.replicated import PROTOCOL, Hello, Refusal, ServerAnswer, Welcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.plog.replicated import Answer, ReplicaRequest
    from penstock.testing.simulate._kernel import Kernel, SimProcess
    from penstock.testing.simulate._owner import SimOwner
    from penstock.testing.simulate._server import SimServer

__all__ = ["SimLink", "SimNetwork"]

_CONNECT_S: Final = 0.5
_PAUSE_S: Final = 0.2


class SimNetwork:
    """What happens to messages between owners and servers."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.lost_share = self.doubled_share = self.late_share = 0.0
        self.partitions: dict[tuple[str, str], None] = {}  # owner and server
        self.links = 0

    def carry(self, owner: SimOwner, server: SimServer, process: SimProcess, call: Callable[[], None]) -> None:
        """Have a message arrive at a process: never, once or twice, sooner or later."""
        random = self._kernel.random
        if (owner.process.name, server.name) in self.partitions or random.random() < self.lost_share:
            return
        for _ in range(2 if random.random() < self.doubled_share else 1):
            late = random.random() < self.late_share
            self._kernel.at(random.uniform(0.05, 1.5) if late else random.uniform(0.0002, 0.002), process, call)


class SimLink:
    """The connection of an owner to a server: one session after another."""

    def __init__(self, owner: SimOwner, server: SimServer, network: SimNetwork, kernel: Kernel) -> None:
        self._owner, self._server, self._network, self._kernel = owner, server, network, kernel
        self.is_up = False
        self._id = 0
        self._waiting: list[tuple[ReplicaRequest, bytes, Callable[[ServerAnswer | None], None]]] = []
        self._sent: dict[int, Callable[[ServerAnswer | None], None]] = {}
        self._connect()

    def _connect(self) -> None:
        network, owner = self._network, self._owner
        network.links += 1
        link = self._id = network.links
        hello = Hello(PROTOCOL, self._server.cluster, self._server.group, "p", owner.epoch, owner.token, link)

        def answered(answer: ServerAnswer | None) -> None:
            if link != self._id or self.is_up:
                return
            if answer is not None and isinstance(answer.message, Welcome):
                self._open()
            elif answer is not None and isinstance(answer.message, Refusal) and answer.message.reason == "fenced":
                owner.end("fenced")

        self._transmit(hello, b"", answered)
        self._kernel.at(_CONNECT_S, owner.process, lambda: None if self.is_up or link != self._id else self.cut())

    def _open(self) -> None:
        self.is_up = True
        self._owner.link_opened(self._server.group, self._server.place)
        waiting, self._waiting = self._waiting, []
        for request, payload, answered in waiting:
            self._transmit(request, payload, answered)

    def cut(self) -> None:
        """Close the connection; requests without an answer have none, and a new session begins after a pause."""
        self.is_up, self._id = False, -1
        sent, self._sent = self._sent, {}
        for answered in sent.values():
            answered(None)
        self._kernel.at(_PAUSE_S * self._kernel.random.random(), self._owner.process, self._connect)

    def request(self, request: ReplicaRequest, payload: bytes, answered: Callable[[ServerAnswer | None], None]) -> None:
        """Send a request, now or when there is a session."""
        if self.is_up:
            self._transmit(request, payload, answered)
        else:
            self._waiting.append((request, payload, answered))

    def _transmit(
        self, request: ReplicaRequest, payload: bytes, answered: Callable[[ServerAnswer | None], None]
    ) -> None:
        owner, server, network, link = self._owner, self._server, self._network, self._id
        owner.number += 1
        number = owner.number
        self._sent[number] = answered

        def arrived(answer: Answer, data: bytes) -> None:
            if link == self._id:
                done = self._sent.get(number)
                if done is not None:
                    done(ServerAnswer(answer, data))

        def answer(message: Answer, data: bytes) -> None:
            network.carry(owner, server, owner.process, lambda: arrived(message, data))

        process = server.process
        network.carry(owner, server, process, lambda: server.receive(link, number, request, payload, answer))
