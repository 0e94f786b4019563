"""Requests that are repeated while the object store does not answer, and what an unknown outcome turns out to be."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeVar

from penstock.errors import NoSuchObject, ObjectChanged, ObjectExists, PenstockError, StorageUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.ports import Bytes, Clock, Objects

__all__ = ["Requests"]

T = TypeVar("T")
_PAUSE_S: Final = 0.02
_PAUSE_MAX_S: Final = 2.0


class Requests:
    """Requests to a bucket, each repeated for up to ``unavailable_max_s``; ``pause`` waits between two attempts."""

    def __init__(
        self, objects: Objects, *, clock: Clock, pause: Callable[[float], object], unavailable_max_s: float
    ) -> None:
        self.objects: Final = objects
        self._clock = clock
        self._pause = pause
        self._unavailable_max_s = unavailable_max_s
        self.answered_at = clock.elapsed()  # the last time
        self._waiting: dict[object, float] = {}  # since when, by request

    @property
    def silent_s(self) -> float:
        """The seconds for which requests have waited and none was answered; 0.0 while none waits."""
        began = min(list(self._waiting.values()), default=None)
        return 0.0 if began is None else self._clock.elapsed() - max(began, self.answered_at)

    def give_up(self) -> None:
        """Repeat no request any more."""
        self._unavailable_max_s = 0.0

    def again(self, request: Callable[[], T]) -> T:
        """Return the answer of a request that may be carried out several times."""
        waiting = object()
        self._waiting[waiting] = self._clock.elapsed()
        try:
            return self._repeated(request)
        finally:
            del self._waiting[waiting]

    def _repeated(self, request: Callable[[], T]) -> T:
        began, pause_s = self._clock.elapsed(), _PAUSE_S
        while True:
            try:
                answer = request()
            except StorageUnavailable:
                if self._clock.elapsed() - began >= self._unavailable_max_s:
                    raise
            except PenstockError:  # an answer, too
                self.answered_at = self._clock.elapsed()
                raise
            else:
                self.answered_at = self._clock.elapsed()
                return answer
            self._pause(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_MAX_S)

    def put_own(self, name: str, *parts: Bytes) -> None:
        """Put an object whose name no other owner uses, so that one which is there is from an earlier attempt."""
        with suppress(ObjectExists):
            self.again(lambda: self.objects.put_new(name, *parts))

    def put_if_first(self, name: str, data: bytes, *, head_size: int) -> bool:
        """Put an object whose first ``head_size`` bytes no other owner writes; return whether it is there."""
        try:
            self.again(lambda: self.objects.put_new(name, data))
        except ObjectExists:
            try:
                return self.again(lambda: self.objects.get_range(name, 0, head_size)) == data[:head_size]
            except NoSuchObject:  # a new owner has read and deleted it, or never saw it
                return False
        return True

    def replace_own(self, name: str, data: bytes, *, tag: str | None) -> str:
        """Replace the version with this tag by ``data``, which no other version has; return the new tag."""
        try:
            return self.again(lambda: self.objects.replace(name, data, tag=tag))
        except ObjectChanged:
            try:
                stored = self.again(lambda: self.objects.get(name))
            except NoSuchObject:
                stored = None
            if stored is not None and stored.data == data:  # an earlier attempt, whose answer was lost
                return stored.tag
            raise
