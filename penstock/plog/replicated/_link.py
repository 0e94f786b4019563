"""The link of an owner to one server: a connection with an open session, and the requests that wait for an answer.

A thread opens the session, and opens the next one when the connection is lost: at once the first time, then after
growing pauses. Answers are read by an :class:`AnswerReader`. A request is sent by the thread of its caller. Its number
is given while no other request is sent on this link, so numbers grow in the order of sending, over all sessions.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from penstock.errors import BadArgument, PenstockError, PlogServerRefused, StoreFenced
from penstock.frames import FrameConnection, FrameError, pack_frame
from penstock.plog.replicated._actions import ServerAnswer
from penstock.plog.replicated._messages import Hello, Refusal, Welcome, decode_answer, encode_header
from penstock.plog.replicated._refusals import fenced_by
from penstock.plog.replicated._tls import lost_reason, secured

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Sequence

    from penstock.frames import ReceivedFrame
    from penstock.plog.replicated._messages import Answer, ReplicaRequest
    from penstock.plog.replicated._reader import AnswerReader
    from penstock.ports import Bytes

__all__ = ["LinkObserver", "ServerAccess", "ServerLink", "open_session"]

_CONNECT_S: Final = 2.0
_HELLO_S: Final = 5.0  # the server makes the fence durable before it answers
_SEND_S: Final = 2.0
_END_S: Final = 0.2  # for the thread at the end: a session that is being opened then is not used, and not waited for
_PAUSE_S_MIN: Final = 0.1
_PAUSE_S_MAX: Final = 1.0
_reported: Final[dict[str, str]] = {}  # why a server is away, as logged last: a store may be opened every second
_logger: Final = logging.getLogger("penstock.plogs")


@dataclass(frozen=True, slots=True)
class ServerAccess:
    """How a client is let in: its user, if servers have users, and the certificates it trusts, if they use TLS."""

    user: str = ""
    password: str = field(default="", repr=False)
    tls: ssl.SSLContext | None = None


def open_session(address: str, hello: Hello, access: ServerAccess) -> tuple[FrameConnection, Welcome]:
    """Connect to a server and open a session.

    ``OSError`` if it is not there, or its disk fails; ``StoreFenced`` if there is a newer owner; ``PlogServerRefused``
    if it does not accept this client.
    """
    name, _, number = address.rpartition(":")
    host, port = name.strip("[]"), int(number)
    raw = socket.create_connection((host, port), timeout=_CONNECT_S)
    try:
        if access.tls is not None:
            raw = secured(raw, host, access.tls)
        connection = FrameConnection(raw)
        connection.send(pack_frame(encode_header(1, hello)), timeout_s=_SEND_S)
        frame = _received(connection)
        answer = decode_answer(frame.header, payload_size=len(frame.payload))[1]
        if isinstance(answer, Welcome):
            return connection, answer
    except (FrameError, BadArgument) as error:
        raw.close()
        raise PlogServerRefused(address, reason=str(error)) from error
    except (EOFError, ConnectionError) as error:
        raw.close()
        raise ConnectionError(lost_reason(error, host, port, uses_tls=access.tls is not None)) from error
    except BaseException:
        raw.close()
        raise
    raw.close()
    raise _refused(address, answer)


def _received(connection: FrameConnection) -> ReceivedFrame:
    deadline = time.monotonic() + _HELLO_S
    while (frame := connection.receive()) is None:
        if not connection.wait(deadline - time.monotonic()):
            raise TimeoutError(f"no answer within {_HELLO_S:g} s")
    return frame


def _refused(address: str, answer: Answer) -> PenstockError | OSError:
    if isinstance(answer, Refusal) and answer.reason == "fenced":
        return fenced_by(answer.value)
    if isinstance(answer, Refusal) and answer.reason == "superseded":
        reason = "this owner has a later session with it: it is in its group twice"
        return PlogServerRefused(address, reason=reason, is_setup_wrong=True)
    if isinstance(answer, Refusal) and answer.reason == "other-deployment":
        return PlogServerRefused(address, reason=answer.text, is_setup_wrong=True)
    if isinstance(answer, Refusal) and answer.reason != "bad-request":  # as of a full disk: it may be well again later
        return OSError(answer.text or answer.reason)
    return PlogServerRefused(address, reason=answer.text if isinstance(answer, Refusal) else type(answer).__name__)


class LinkObserver:
    """What the plogs of an owner learn from their links; called by the thread of the link."""

    def link_up(self, link: ServerLink, welcome: Welcome) -> None:
        """Note that a session is open; ``PenstockError`` if this server cannot be used."""

    def link_down(self, link: ServerLink, reason: str) -> None:
        """Note that the server is away, and that this was not a short interruption."""

    def link_fenced(self, error: PenstockError) -> None:
        """Note that there is a newer owner."""


class ServerLink:
    """The link to the server at one place of a group; see the module."""

    def __init__(
        self,
        address: str,
        hello: Callable[[], Hello],
        access: ServerAccess,
        *,
        group: str,
        place: int,
        observer: LinkObserver,
        reader: AnswerReader,
    ) -> None:
        self.address, self.group, self.place = address, group, place
        self._name = f"{group}/{address}"
        self._hello, self._access, self._observer, self._reader = hello, access, observer, reader
        self._changed = threading.Condition()
        self._send_lock = threading.Lock()
        self.state = "connecting"  # or up, down, over
        self.trouble: str | None = None  # why it is down
        self.refusal: PlogServerRefused | None = None  # if that is because the server refuses this client
        self.late_since: float | None = None  # since when a request that did not wait has no answer, and no other one
        self._connection: FrameConnection | None = None
        self._number = 0
        self._waiting: dict[int, Callable[[ServerAnswer | None], None]] = {}
        self._thread = threading.Thread(target=self._work, name=f"penstock-plogs-{address}", daemon=True)

    def start(self) -> None:
        """Open the first session, in the background."""
        self._thread.start()

    def settled(self, timeout_s: float) -> bool:
        """Wait while a session is being opened; return whether one is open."""
        with self._changed:
            self._changed.wait_for(lambda: self.state != "connecting", timeout_s)
            return self.state == "up"

    def leave_out(self, reason: str) -> None:
        """Count a server as away whose session is being opened; it is used as soon as that is done."""
        with self._changed:
            if self.state == "connecting":
                self._note_down(reason)

    def send(
        self,
        request: ReplicaRequest,
        payload: Sequence[Bytes],
        on_answer: Callable[[ServerAnswer | None], None],
        *,
        payload_crc: int | None = None,
    ) -> bool:
        """Send a request on the open session, if there is one; ``on_answer`` gets None if the connection is lost."""
        connection = self._connection
        if connection is None:
            return False
        with self._send_lock:
            self._number += 1
            number = self._number
            self._waiting[number] = on_answer
            try:
                frame = pack_frame(encode_header(number, request), *payload, payload_crc=payload_crc)
                connection.send(frame, timeout_s=_SEND_S)
            except (OSError, ValueError):  # it is closed, or about to be: its thread notices
                connection.shut_down()
                return self._waiting.pop(number, None) is None
        if self._connection is not connection:  # it was lost after the others were told
            lost = self._waiting.pop(number, None)
            return lost is None
        return True

    def drop(self, reason: str) -> None:
        """Give the connection up because the server does not answer; it counts as away until it does."""
        with self._changed:
            connection = self._connection
            if connection is None:
                return
            self._connection = None
            self.state, self.trouble = "down", reason
            self._changed.notify_all()
        connection.shut_down()
        self._reader.hurry()

    def _work(self) -> None:
        pause_s, may_retry = 0.0, True
        while self.state != "over":
            try:
                self._serve()
                pause_s, may_retry = 0.0, True
            except (OSError, PenstockError, ValueError) as error:  # the last one of an address that cannot be looked up
                if may_retry and isinstance(error, ConnectionError) and not isinstance(error, ConnectionRefusedError):
                    may_retry = False  # the new connection was cut, too: the network may be restless
                    continue
                reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
                self.refusal = error if isinstance(error, PlogServerRefused) else None
                reason = reason if self.refusal is None else f"it refuses this owner: {self.refusal.reason}"
                if isinstance(error, StoreFenced):
                    self._note_down(reason)
                    self._observer.link_fenced(error)
                    return
                if self._note_down(reason):
                    self._observer.link_down(self, reason)
                pause_s = min(max(_PAUSE_S_MIN, 2 * pause_s), _PAUSE_S_MAX)
                with self._changed:
                    self._changed.wait_for(lambda: self.state == "over", pause_s)
            except Exception:
                _logger.exception("the link to plog server %s has failed", self.address)
                self._note_down("a mistake of ours: see the log")
                pause_s = _PAUSE_S_MAX
                with self._changed:
                    self._changed.wait_for(lambda: self.state == "over", pause_s)

    def _note_down(self, reason: str) -> bool:
        with self._changed:
            if self.state == "over":
                return False
            if _reported.get(self._name) != reason:
                _reported[self._name] = reason
                _logger.warning("plog server %s of group %s is away: %s", self.address, self.group, reason)
            self.state, self.trouble = "down", reason
            self._changed.notify_all()
            return True

    def _serve(self) -> None:
        """Open a session and read answers until the connection is lost; an error if there is no session."""
        connection, welcome = open_session(self.address, self._hello(), self._access)
        try:
            with self._changed:
                if self.state == "over":
                    return
                self._connection = connection
            self._observer.link_up(self, welcome)
            with self._changed:
                if self.state == "over" or self._connection is None:
                    return
                if _reported.pop(self._name, None) is not None:
                    _logger.info("plog server %s of group %s is back", self.address, self.group)
                self.state, self.trouble, self.refusal, self.late_since = "up", None, None, None
                self._changed.notify_all()
            lost = threading.Event()
            self._reader.add(connection, self._take, lost.set)
            lost.wait()
        finally:
            with self._changed:
                self._connection = None
                if self.state == "up":
                    self.state = "connecting"
            connection.close()
            with self._send_lock:
                waiting, self._waiting = self._waiting, {}
            for on_answer in waiting.values():
                on_answer(None)

    def _take(self, frame: ReceivedFrame) -> None:
        number, answer = decode_answer(frame.header, payload_size=len(frame.payload))
        self.late_since = None
        on_answer = self._waiting.pop(number, None)
        if on_answer is not None:
            on_answer(ServerAnswer(answer, frame.payload))

    def close(self) -> None:
        """End the session."""
        with self._changed:
            self.state = "over"
            connection = self._connection
            self._changed.notify_all()
        if connection is not None:
            connection.shut_down()
            self._reader.hurry()
        if self._thread is not threading.current_thread() and self._thread.ident is not None:
            self._thread.join(_END_S)
