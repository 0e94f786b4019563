"""One connection of a plog server: its session, and its requests, begun in their order and answered in their order.

A request that has begun and waits for a sync is followed by others, until the connection has no more for now. Then the
first is waited for; the sync that makes it durable makes most of the others durable, too. Large appends of a flush come
about a millisecond after one another, so their sync waits a moment for the next one, while the disk is writing already;
but only for as many as there were in the flush before. A list of replicas, which may read many files, is made by a
thread of its own.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from penstock.errors import (
    BadArgument,
    DiskFailed,
    DiskFull,
    JournalCorrupt,
    LoginsBusy,
    NotAuthenticated,
    NotPermitted,
    PenstockError,
    PlogCorrupt,
    ServerBusy,
)
from penstock.frames import HEADER_SIZE_MAX, FrameError, pack_frame
from penstock.plog._replica import APPEND_SIZE_MAX
from penstock.plog.replicated import (
    LIST_COUNT_MAX,
    PROTOCOL,
    DamagedList,
    Hello,
    ListDamaged,
    ListReplicas,
    Refusal,
    ReplicaList,
    Welcome,
    decode_request,
    encode_header,
    refusal_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.frames import FrameConnection, ReceivedFrame
    from penstock.plog.replicated import Answer, HostSession, HostSteps
    from penstock.plog.server._folder import HostedPartition, ServerFolder
    from penstock.plog.server._limits import PlogServerLimits, RequestBudget

__all__ = ["PRESENT_OWNER", "CheckUser", "ClientConnection"]

CheckUser = Callable[[str, str, str], Callable[[], object]]
"""Raises why a user with this password, from this peer, may not open a session; returns what raises it later on."""

PRESENT_OWNER: Final = 2
_CREDENTIALS_S: Final = 1.0  # how soon a user who was removed is disconnected, at the next request
_OTHER_DEPLOYMENT: Final = (
    "partition {} of this server belongs to another deployment, which has another oracle: check the address of the "
    "oracle, or give this deployment plog servers of its own"
)
_COUNT_MAX: Final = 1000  # requests of a connection that are begun and not answered
_LARGE_SIZE_MIN: Final = 128 << 10  # smaller appends wait for no others
_TOGETHER_SIZE_MAX: Final = 4 << 20  # of appends that share a sync: more wait for no others, either
_COMPANY_COUNT_MAX: Final = 4  # waits of company_s_max for one sync, whatever arrives meanwhile
_logger: Final = logging.getLogger("penstock.plog_server")
Reply = tuple["Answer", "Sequence[memoryview | bytes]"]


class _BegunRequest(msgspec.Struct, eq=False):
    """A request that waits for a call of its host, such as a sync."""

    number: int
    steps: HostSteps[Reply | None]
    call: Callable[[], Any]
    size: int


class ClientConnection:
    """Serves one client until it goes; see the module."""

    def __init__(
        self,
        connection: FrameConnection,
        folder: ServerFolder,
        *,
        limits: PlogServerLimits,
        budget: RequestBudget,
        check_user: CheckUser | None,
        peer: str,
    ) -> None:
        self._peer = peer
        self._connection, self._folder, self._limits = connection, folder, limits
        self._budget, self._check_user = budget, check_user
        self._begun: deque[_BegunRequest] = deque()
        self._size = 0  # of the requests that are begun
        self._run_length = 0  # large appends so far, each of which came before those before it were durable
        self._expected_length = 1  # that of the last run
        self._partition: HostedPartition | None = None
        self._session: HostSession | None = None
        self._check_again: Callable[[], object] | None = None
        self._checked_at = time.monotonic()
        self._lister: threading.Thread | None = None  # the last one
        self._reads_nothing = False  # a reader of a partition that is not here, and is not made for it
        self.seen_at = time.monotonic()
        self.appends = self.appended_size = 0

    @property
    def standing(self) -> int:
        """0 without a session; 1 for a reader, or an owner that was replaced; or ``PRESENT_OWNER``."""
        if self._session is None or self._partition is None:
            return int(self._reads_nothing)
        return PRESENT_OWNER if self._partition.host.is_current(self._session) else 1

    def serve(self) -> None:
        """Answer requests until the client closes the connection, or does not keep to the protocol."""
        try:
            if self._open_session():
                self._connection.size_max = HEADER_SIZE_MAX + APPEND_SIZE_MAX
                while True:
                    if not self._begun:
                        self._begin(self._connection.await_frame())
                    self._serve_arrived()
                    if self._run_length:
                        self._gather()
                    for _ in range(len(self._begun)):
                        self._complete_first()
                        if self._begun:
                            self._serve_arrived()
        except (EOFError, OSError):
            pass  # the client is gone
        except (FrameError, BadArgument) as error:
            _logger.warning("a connection is closed: %s", error)
        finally:
            self._finish()

    def _open_session(self) -> bool:
        """Wait for the first message and answer it; return whether the session is open."""
        deadline = time.monotonic() + self._limits.hello_s_max
        while (frame := self._connection.receive()) is None:
            if not self._connection.wait(deadline - time.monotonic()):
                return False
        number, hello = decode_request(frame.header, payload_size=len(frame.payload))
        if not isinstance(hello, Hello):
            raise BadArgument("the first message of a connection has to open a session")
        self._send(number, self._hello_answer(hello))
        return self._session is not None or self._reads_nothing

    def _hello_answer(self, hello: Hello) -> Answer:
        if hello.protocol != PROTOCOL:
            return Refusal("bad-request", PROTOCOL, f"this server speaks version {PROTOCOL} of the protocol")
        try:
            refusal = self._refusal(hello)
            if refusal is not None:
                return refusal
            identity = self._folder.identity
            if hello.epoch is None and not self._folder.has_partition(hello.partition):
                self._reads_nothing = True
                return Welcome(identity.server, identity.instance, 0)
            partition = self._folder.partition(hello.partition, count_max=self._limits.partitions_max)
        except PenstockError as error:
            _logger.warning("a session is refused: %s", error)
            if isinstance(error, DiskFull | DiskFailed | PlogCorrupt | JournalCorrupt):
                return refusal_of(error)
            is_busy = isinstance(error, LoginsBusy | ServerBusy)
            return Refusal("busy" if is_busy else "bad-request", 0, str(error)[:2000])
        self._partition = partition
        session: HostSession | None
        answer: Answer
        session, answer = self._run(partition.host.open_session(hello))
        self._session = session
        return answer

    def _refusal(self, hello: Hello) -> Refusal | None:
        """Return why a client with this first message is not served, None if it is; an error for its user."""
        if self._check_user is not None:
            self._check_again = self._check_user(hello.user, hello.password, self._peer)
        identity = self._folder.identity
        if (hello.cluster, hello.group) != (identity.cluster, identity.group):
            where = f"server {identity.server} of group {identity.group} in cluster {identity.cluster}"
            return Refusal("bad-request", 0, f"this is {where}")
        if hello.epoch is not None and not self._folder.is_of(hello.partition, hello.deployment):
            text = _OTHER_DEPLOYMENT.format(hello.partition)
            _logger.warning("a session is refused: %s", text)
            return Refusal("other-deployment", 0, text)
        return None

    def _run(self, steps: HostSteps[Any]) -> Any:  # noqa: ANN401 - what the steps return
        call = self._advance(steps, None)
        while not isinstance(call, StopIteration):
            call = self._advance(steps, call)
        return call.value

    def _advance(self, steps: HostSteps[Any], call: Callable[[], Any] | None) -> Any:  # noqa: ANN401 - a call, or the end
        """Make a call without the lock of the host, and go on with it; return the next call, or ``StopIteration``."""
        assert self._partition is not None
        result, failure = None, None
        if call is not None:
            try:
                result = call()
            except PenstockError as error:
                failure = error
        with self._partition.lock:
            try:
                return steps.send(result) if failure is None else steps.throw(failure)
            except StopIteration as end:
                return end

    def _serve_arrived(self) -> None:
        """Begin all requests that have arrived, as far as limits allow."""
        limits = self._limits
        while self._size < limits.connection_size_max and len(self._begun) < _COUNT_MAX:
            frame = self._connection.receive()
            if frame is None:
                return
            self._begin(frame)

    def _gather(self) -> None:
        """Wait a moment for the large appends that are expected, as long as there is not enough for a sync without."""
        enough = min(_TOGETHER_SIZE_MAX, self._limits.connection_size_max)
        company_s = self._limits.company_s_max
        deadline = time.monotonic() + _COMPANY_COUNT_MAX * company_s
        while self._run_length < self._expected_length and _LARGE_SIZE_MIN <= self._size < enough:
            left = min(deadline - time.monotonic(), company_s)
            if left <= 0 or len(self._begun) >= _COUNT_MAX or not self._connection.wait(left):
                self._end_run()
                return
            self._serve_arrived()

    def _end_run(self) -> None:
        self._expected_length, self._run_length = max(1, self._run_length), 0

    def _begin(self, frame: ReceivedFrame) -> None:
        number, request = decode_request(frame.header, payload_size=len(frame.payload))
        self.seen_at = time.monotonic()
        if self._check_again is not None and self.seen_at - self._checked_at >= _CREDENTIALS_S:
            self._check_user_again(self._check_again)
        if self._reads_nothing:
            is_list = isinstance(request, ListReplicas)
            self._send(number, ReplicaList([], more=False) if is_list else Refusal("no-such-plog"))
            return
        assert self._partition is not None
        assert self._session is not None
        if isinstance(request, ListDamaged):
            with self._partition.lock:  # an owner that is idle asks for nothing else
                self._partition.host.expire(time.monotonic())
            self._send(number, DamagedList(sorted(self._partition.replicas.damaged)[:LIST_COUNT_MAX]))
            return
        steps = self._partition.host.handle(self._session, number, request, frame.payload, now=time.monotonic())
        if isinstance(request, ListReplicas):
            self._list(number, steps)
            return
        call = self._advance(steps, None)
        if isinstance(call, StopIteration):
            self._reply(number, call.value)
            return
        size, begun = len(frame.header) + len(frame.payload), _BegunRequest(number, steps, call, 0)
        try:
            while not self._budget.take(size, waits=not self._begun):
                self._complete_first()  # what this connection holds may be what others wait for
            begun.size = size
        finally:
            self._begun.append(begun)  # also if the client is gone: what has begun is carried out
        self._size += size
        self._run_length += size >= _LARGE_SIZE_MIN
        self.appends += 1
        self.appended_size += len(frame.payload)

    def _list(self, number: int, steps: HostSteps[Reply | None]) -> None:
        """List replicas in a thread of its own: appends do not wait for it. A client that asks twice waits itself."""
        if self._lister is not None:
            self._lister.join()
        self._lister = threading.Thread(
            target=self._answer_list, args=(number, steps), name="penstock-plog-list", daemon=True
        )
        try:
            self._lister.start()
        except RuntimeError as error:  # the system has no more threads
            self._lister = None
            self._send(number, Refusal("busy", 0, str(error)))

    def _answer_list(self, number: int, steps: HostSteps[Reply | None]) -> None:
        try:
            self._reply(number, self._run(steps))
        except OSError:
            self._connection.shut_down()  # its own thread notices, and ends it
        except Exception:
            _logger.exception("replicas cannot be listed")
            self._connection.shut_down()

    def _check_user_again(self, check: Callable[[], object]) -> None:
        """End the connection of a user who was removed, has another password, or lost the permission."""
        self._checked_at = self.seen_at
        try:
            check()
        except (NotAuthenticated, NotPermitted) as error:
            _logger.warning("a connection is closed: %s", error)
            raise ConnectionAbortedError(str(error)) from error
        except PenstockError as error:  # such as a file of users that is being edited: not the user's fault
            _logger.warning("a user cannot be checked again: %s", error)

    def _finish(self) -> None:
        """Carry out what is begun, without answers: a later session relies on it that no append is half done."""
        while self._begun:
            with suppress(EOFError, OSError):
                self._complete_first()
        if self._lister is not None:
            self._connection.shut_down()
            self._lister.join()

    def _complete_first(self) -> None:
        """Wait for the first request that is begun, and answer it."""
        request = self._begun.popleft()
        try:
            call = self._advance(request.steps, request.call)
            while not isinstance(call, StopIteration):
                call = self._advance(request.steps, call)
        finally:
            self._size -= request.size
            self._budget.free(request.size)
        if self._run_length and not self._begun and not self._connection.wait(0):  # after the answer others may come
            self._end_run()
        self._reply(request.number, call.value)

    def _reply(self, number: int, reply: Reply | None) -> None:
        if reply is not None:
            self._send(number, reply[0], *reply[1])
            if isinstance(reply[0], Refusal) and reply[0].reason == "disk-failed":
                self._check_disk(reply[0].text)

    def _check_disk(self, text: str) -> None:
        """End the connection if the disk has stopped the partition: the next session opens it anew."""
        assert self._partition is not None
        if self._partition.is_stopped():
            _logger.error("a connection is closed: %s", text)
            raise ConnectionAbortedError(text)

    def _send(self, number: int, answer: Answer, *payload: memoryview | bytes) -> None:
        frame = pack_frame(encode_header(number, answer), *payload)
        self._connection.send(frame, timeout_s=self._limits.send_s_max)

    def end(self) -> None:
        """End the connection, from another thread."""
        self._connection.shut_down()
