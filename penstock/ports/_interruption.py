"""Interruption: signals are held back while the main thread is within a step that must not end half done."""

from __future__ import annotations

import _signal  # the module signal takes 16 microseconds for a call that takes one here
import functools
import os
import threading
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

__all__ = ["interruptible", "interruption_point", "opened", "uninterrupted"]

P = ParamSpec("P")
T = TypeVar("T")
_SIGNALS: Final = tuple(  # those that programs handle, not those of crashes and job control; each costs 0.1 us
    getattr(_signal, name)
    for name in (
        "SIGHUP",
        "SIGINT",
        "SIGQUIT",
        "SIGUSR1",
        "SIGUSR2",
        "SIGALRM",
        "SIGTERM",
        "SIGCHLD",
        "SIGVTALRM",
        "SIGPROF",
    )
)


class _Hold:
    """Holds signals back while the main thread is within a step: Ctrl-C, and all whose handler is in Python."""

    def __init__(self) -> None:
        self.is_on = False
        self._handlers: tuple[object, ...] = ()  # of all signals, at the start of the last step
        self._before: dict[int, Callable[[int, FrameType | None], object]] = {}  # the handlers that are in Python
        self._held: dict[int, FrameType | None] = {}  # in the order of their arrival
        self._handler = self._hold  # one object, so that it can be compared by identity
        self.find_main_thread()

    def find_main_thread(self) -> None:
        """Note which thread is the main thread."""
        self.main_thread = threading.main_thread().ident

    def begin_anew(self) -> None:
        """In a forked process, make the thread that forked the main one; end the step of a thread that is not there."""
        if self.is_on and threading.get_ident() != self.main_thread:
            self._held = {}
            self.__exit__()
        self.find_main_thread()

    def __enter__(self) -> None:
        handlers = tuple(map(_signal.getsignal, _SIGNALS))
        if handlers != self._handlers:
            pairs = zip(_SIGNALS, handlers, strict=True)
            self._before = {number: handler for number, handler in pairs if callable(handler)}
            self._handlers = handlers
        self._held = {}
        try:
            for number in self._before:
                _signal.signal(number, self._handler)
        except BaseException:  # raised by the handler of a signal that is not held yet
            self.__exit__()
            raise
        self.is_on = True

    def _hold(self, number: int, frame: FrameType | None) -> None:
        self._held[number] = frame

    def __exit__(self, *_: object) -> None:
        self.is_on = False
        try:
            self._restore()
        finally:
            if self._held:  # checked last, because a signal may arrive while handlers are restored
                self.deliver()

    def _restore(self) -> None:
        """Restore the handlers, unless they were replaced meanwhile; the first restored one may raise at once."""
        try:
            for number, before in self._before.items():
                if _signal.getsignal(number) is self._handler:
                    _signal.signal(number, before)
        except BaseException:
            self._restore()
            raise

    def deliver(self) -> None:
        """Call the handlers of the signals held back; if one raises, the others are called all the same."""
        if self._held:
            number = next(iter(self._held))
            frame = self._held.pop(number)
            try:
                self._before[number](number, frame)
            finally:
                self.deliver()


_hold: Final = _Hold()
os.register_at_fork(after_in_child=_hold.begin_anew)


def uninterrupted(step: Callable[P, T]) -> Callable[P, T]:
    """Hold back Ctrl-C, and other signals, until the step is over or reaches an :func:`interruption_point`.

    Python calls signal handlers, of which that of Ctrl-C raises KeyboardInterrupt, between any two instructions of the
    main thread: also between writing a record and noting that it is written, or between taking a lock and the ``try``
    after it. Only ``with lock`` on a lock of the C library takes and releases it in one instruction; code that takes a
    lock in any other way is within a step. A step ends within a sync or two, so a signal does not wait long.
    """

    @functools.wraps(step)
    def held(*args: P.args, **kwargs: P.kwargs) -> T:
        if _hold.is_on or threading.get_ident() != _hold.main_thread:
            return step(*args, **kwargs)
        with _hold:
            return step(*args, **kwargs)

    return held


def opened(step: Callable[[], T], close: Callable[[T], object]) -> T:
    """Open a handle in a step; close it again if an interrupt comes before the caller gets it."""
    handles: list[T] = []
    try:
        return _opened_into(handles, step)
    except BaseException:
        for handle in handles:
            close(handle)
        raise


@uninterrupted
def _opened_into(handles: list[T], step: Callable[[], T]) -> T:
    handles.append(step())
    return handles[0]


def interruption_point() -> None:
    """Deliver signals held back: the caller is within a step, at a place where nothing is half done."""
    if _hold.is_on and threading.get_ident() == _hold.main_thread:
        _hold.deliver()


def interruptible(wait: Callable[[], T]) -> T:
    """Wait within a step, and let a signal end the wait at once: nothing is half done at this place."""
    if not _hold.is_on or threading.get_ident() != _hold.main_thread:
        return wait()
    _hold.__exit__()
    try:
        return wait()
    finally:
        _hold.__enter__()
