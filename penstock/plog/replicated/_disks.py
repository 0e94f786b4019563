"""Servers whose disk is full or fails: they answer, but take no writes, so they count as away until they take one.

What a server has refused counts until it succeeds there, or until the server is restarted. An append that finds its
space allocated says nothing about the space for a new plog: only a creation makes good for a creation. An owner may be
idle, or leave the group out, so a thread tries a creation on such a server from time to time.
"""

from __future__ import annotations

import logging
import secrets
import threading
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.errors import PenstockError, StoreFenced
from penstock.plog._replica import PLOG_SIZE_DEFAULT
from penstock.plog.replicated._actions import Ask
from penstock.plog.replicated._messages import AppendReplica, CreateReplica, DeleteReplica, Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.plog.replicated._actions import ReplicaSteps, ServerAnswer
    from penstock.plog.replicated._messages import Answer

__all__ = ["RefusingDisks"]

_AGAIN_S: Final = 5.0  # between two tries
_FULL: Final = "its disk is full"
_UID_SIZE: Final = 16
_logger: Final = logging.getLogger("penstock.plogs")


class _Refused(NamedTuple):
    """Why a server takes no writes, and the size of the plog that it did not create; 0 if it refused an append."""

    reason: str
    size: int


class RefusingDisks:
    """What the servers of an owner have refused last, by group and place, and the thread that tries them again."""

    def __init__(self, groups: Mapping[str, tuple[str, ...]], run: Callable[[ReplicaSteps[None]], None]) -> None:
        self._groups, self._run = groups, run
        self._changed = threading.Condition()
        self._refused: dict[tuple[str, int], _Refused] = {}
        self._over = False
        self._thread = threading.Thread(target=self._work, name="penstock-plog-disks", daemon=True)

    def start(self) -> None:
        """Begin to try servers again."""
        self._thread.start()

    def reason(self, group: str, place: int) -> str | None:
        """Return why a server takes no writes, None if it does, as far as is known."""
        refused = self._refused.get((group, place))
        return None if refused is None else refused.reason

    def noted(self, ask: Ask, answers: list[ServerAnswer | None]) -> list[ServerAnswer | None]:
        """Note what became of the creations and appends among some requests; return the answers."""
        for (place, request, _), answer in zip(ask.requests, answers, strict=True):
            if answer is not None and isinstance(request, AppendReplica | CreateReplica):
                size = request.size if isinstance(request, CreateReplica) else 0
                self.note(ask.group, place, answer.message, size=size)
        return answers

    def note(self, group: str, place: int, answer: Answer, *, size: int = 0) -> None:
        """Note the answer of a server to an append, or to the creation of a plog of this size."""
        if isinstance(answer, Refusal):
            if answer.reason in {"disk-full", "disk-failed"}:
                reason = _FULL if answer.reason == "disk-full" else answer.text or "its disk fails"
                self._refuse(group, place, _Refused(reason, size))
        elif (group, place) in self._refused:
            self._take(group, place, size)

    def _refuse(self, group: str, place: int, refused: _Refused) -> None:
        with self._changed:
            known = self._refused.get((group, place))
            self._refused[group, place] = refused if known is None or refused.size else _Refused(refused[0], known.size)
            self._changed.notify()
        if known is None or known.reason != refused.reason:
            address = self._groups[group][place]
            _logger.warning("plog server %s of group %s takes no writes: %s", address, group, refused.reason)

    def _take(self, group: str, place: int, size: int) -> None:
        with self._changed:
            known = self._refused.get((group, place))
            if known is None or (known.size and not size):
                return
            del self._refused[group, place]
        _logger.info("plog server %s of group %s takes writes again", self._groups[group][place], group)

    def restarted(self, group: str, place: int) -> None:
        """Forget what a server has refused before it was started."""
        with self._changed:
            self._refused.pop((group, place), None)

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._over or self._refused)
                self._changed.wait_for(lambda: self._over, _AGAIN_S)
                if self._over:
                    return
                refused = dict(self._refused)
            for (group, place), (_, size) in refused.items():
                try:
                    self._run(_try_creation(group, place, size or PLOG_SIZE_DEFAULT))
                except StoreFenced:
                    return
                except PenstockError as error:
                    _logger.warning("a plog server of group %s cannot be tried again now: %s", group, error)
                except Exception:
                    _logger.exception("a plog server of group %s could not be tried again", group)

    def close(self) -> None:
        """End after the try that is under way."""
        with self._changed:
            self._over = True
            self._changed.notify()
        if self._thread.ident is not None:
            self._thread.join()


def _try_creation(group: str, place: int, size: int) -> ReplicaSteps[None]:
    """Create a plog on one server, and delete it again; the shell notes what the server answers."""
    uid = secrets.token_bytes(_UID_SIZE)
    answers: list[ServerAnswer | None] = yield Ask(group, ((place, CreateReplica(uid, size), ()),))
    if answers[0] is None or not isinstance(answers[0].message, Refusal):
        yield Ask(group, ((place, DeleteReplica(uid), ()),))
