"""All links of an owner, and how the requests of a protocol are sent over them and answered."""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Final

from penstock.checksums import crc32c
from penstock.errors import GroupUnavailable
from penstock.plog.replicated._reader import AnswerWaiter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from penstock.plog.replicated._actions import Ask, ServerAnswer
    from penstock.plog.replicated._link import ServerLink
    from penstock.plog.replicated._reader import AnswerReader

__all__ = ["GroupLinks"]

_ANSWER_S: Final = 5.0
_SETTLE_S: Final = 5.0
_GRACE_S: Final = 1.0  # for the other servers, when enough are there
_LOOK_S: Final = 0.02  # between two looks at the sessions that are being opened
_DECIDING: Final = 2  # servers of a group: one that was restarted does not decide alone
_CLOSING_S: Final = 1.0  # instead of that, once the owner ends
_LOOK_CLOSING_S: Final = 0.25  # between two looks whether it does
_READ_S: Final = 0.5  # until another replica is read
_OPEN_S: Final = 1.0  # that a request waits for a session that is being opened


class _Answers:
    """The answers to some requests, as they come."""

    def __init__(self, count: int, reader: AnswerReader) -> None:
        self._answers: list[ServerAnswer | None] = [None] * count
        self._open = set(range(count))
        self._lock = threading.Lock()
        self._reader, self._waiter = reader, AnswerWaiter()

    def put(self, index: int, answer: ServerAnswer | None) -> None:
        """Note an answer, None if there will be none; called by the thread that reads answers, or that of a link."""
        with self._lock:
            if index not in self._open:
                return
            self._open.remove(index)
            self._answers[index] = answer
            is_last = not self._open
        if is_last:
            self._reader.notify(self._waiter)

    def wait(self, deadline: Callable[[], float]) -> tuple[list[ServerAnswer | None], set[int]]:
        """Return the answers once all are there, or the time is over, and the indexes of those that are not.

        The time may become shorter meanwhile.
        """
        while self._open and (now := time.monotonic()) < (end := deadline()):
            soon = min(end, now + _LOOK_CLOSING_S)
            if self._reader.wait(self._waiter, soon) or time.monotonic() < soon:  # or the reader is closed
                break
        with self._lock:
            late, self._open = self._open, set()
            return self._answers, late


class GroupLinks:
    """The links to the servers of all groups of a cluster."""

    def __init__(
        self, groups: Mapping[str, tuple[ServerLink, ...]], reader: AnswerReader, *, answer_s: float = _ANSWER_S
    ) -> None:
        self._groups, self._reader, self._answer_s = groups, reader, answer_s
        self._closing_at: float | None = None

    def all(self) -> Iterable[ServerLink]:
        """Return the links of all groups."""
        return [link for links in self._groups.values() for link in links]

    def of(self, group: str) -> tuple[ServerLink, ...]:
        """Return the links of a group, in the order of its servers."""
        links = self._groups.get(group)
        if links is None:
            raise GroupUnavailable(group, reason="the cluster has no such group")
        return links

    def is_up(self, group: str) -> bool:
        """Return whether all servers of a group have an open session."""
        return all(link.state == "up" for link in self.of(group))

    def away(self, group: str) -> list[str]:
        """Return the servers of a group that are away, with the reasons; those of all groups if none is complete."""
        own = [_trouble(link) for link in self._groups.get(group, ()) if link.state != "up"]
        if any(self.is_up(other) for other in self._groups):
            return own
        others = [link for link in self.all() if link.group != group and link.state != "up"]
        return [*own, *(f"{_trouble(link)} of group {link.group}" for link in others)]

    def start(self) -> None:
        """Open all sessions at once, and wait until each is open or has failed, or for as many as are needed.

        A server that does not answer in time counts as away, until its session is open. The owners before are fenced on
        the others: that is enough to decide everything, as it is without a server that is dead. A single group is
        waited for, because it has to be complete: without an oracle, to decide anything, and else for new plogs.
        """
        links = list(self.all())
        for link in links:
            link.start()
        start = time.monotonic()
        deadline, may_shorten = start + _SETTLE_S, True
        while (late := [link for link in links if link.state == "connecting"]) and (now := time.monotonic()) < deadline:
            if may_shorten and self._has_enough():
                deadline, may_shorten = min(deadline, now + _GRACE_S), False
            late[0].settled(min(_LOOK_S, max(0.0, deadline - now)))
        for link in late:
            link.leave_out(f"no answer within {time.monotonic() - start:.1f} s")

    def _has_enough(self) -> bool:
        """Return whether a group is complete, for new plogs, and the others can decide lengths, as far as they will."""
        states = [[link.state for link in links] for links in self._groups.values()]
        can_decide = all(group.count("up") >= _DECIDING or "connecting" not in group for group in states)
        return can_decide and any(group.count("up") == len(group) for group in states)

    def check_refusals(self, *, needs_all: bool) -> None:
        """Raise the refusal of a server if the owner must not go on, or cannot.

        One server that refuses is away, as one that is dead: it has another password, speaks a newer protocol, or
        something else listens on its port. The owner goes on with the others, unless ``needs_all``.
        """
        refusals = [link.refusal for link in self.all() if link.refusal is not None]
        is_alone = needs_all or not any(link.state == "up" for link in self.all())
        for refusal in refusals:
            if refusal.is_setup_wrong or is_alone:
                raise refusal

    def ask(self, ask: Ask) -> list[ServerAnswer | None]:
        """Send the requests of a protocol on sessions that are open; return the answers, None where there is none."""
        links, answers = self.of(ask.group), _Answers(len(ask.requests), self._reader)
        by_server: dict[int, list[int]] = {}
        for index, (server, *_) in enumerate(ask.requests):
            by_server.setdefault(server, []).append(index)
        begun = time.monotonic()
        for server in sorted(by_server, key=lambda server: links[server].state != "up"):  # none waits for another
            is_up = links[server].settled(max(0.0, begun + _OPEN_S - time.monotonic()))
            is_asked = is_up and (ask.is_patient or not self._is_late(links[server]))
            for index in by_server[server]:
                _, request, payload = ask.requests[index]
                crc, on_answer = crc32c(0, *payload), partial(answers.put, index)
                if not is_asked or not links[server].send(request, payload, on_answer, payload_crc=crc):
                    answers.put(index, None)
        sent = time.monotonic()
        result, late = answers.wait(lambda: self._deadline(sent, is_patient=ask.is_patient))
        for server in {ask.requests[index][0] for index in late}:
            if ask.is_patient:
                links[server].drop(f"no answer within {round(self._deadline(sent, is_patient=True) - sent, 1):g} s")
            else:
                links[server].late_since = begun
        return result

    def _deadline(self, sent: float, *, is_patient: bool) -> float:
        if self._closing_at is None or not is_patient:
            return sent + (self._answer_s if is_patient else _READ_S)
        return min(sent + self._answer_s, max(sent, self._closing_at) + _CLOSING_S)

    def prepare_close(self) -> None:
        """Give servers up soon that do not answer: each is away then, and is not asked again."""
        if self._closing_at is None:
            self._closing_at = time.monotonic()

    def _is_late(self, link: ServerLink) -> bool:
        """Return whether a server owes an answer to a request that did not wait; after too long a time, give it up."""
        if link.late_since is None:
            return False
        if time.monotonic() >= link.late_since + self._answer_s:
            link.drop(f"no answer within {self._answer_s:g} s")
        return True

    def close(self) -> None:
        """End all sessions."""
        for link in self.all():
            link.close()


def _trouble(link: ServerLink) -> str:
    return f"{link.address} ({link.trouble or 'connecting'})"
