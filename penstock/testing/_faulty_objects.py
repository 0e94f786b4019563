"""Faulty objects: any objects, with the faults of a network and an overloaded store injected by a test.

Every fault is a ``StorageUnavailable``, as from a bucket: the caller cannot tell whether its call was carried out.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar

from penstock.errors import StorageUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.ports import Bytes, Objects, StoredObject

__all__ = ["FaultyObjects", "ObjectFault"]

_Result = TypeVar("_Result")
ObjectCall: TypeAlias = Literal["put_new", "replace", "get", "get_range", "exists", "delete", "names"]


class ObjectFault(Enum):
    """How a call fails, and whether it was carried out."""

    LOST = "it does not answer in time"  # not carried out
    UNANSWERED = "it did not answer in time"  # carried out
    SLOW_DOWN = "it is overloaded (503 SlowDown)"  # not carried out
    CUT = "the connection was cut"  # a deletion of several objects is carried out in part; else, not carried out


@dataclass(slots=True)
class _ObjectRule:
    """A planned fault."""

    fault: ObjectFault
    on: ObjectCall
    calls_left: int | None
    prefix: str

    def takes(self, call: ObjectCall, name: str) -> bool:
        if call != self.on or not name.startswith(self.prefix):
            return False
        if self.calls_left is None:
            return True
        self.calls_left -= 1
        return self.calls_left == 0


class FaultyObjects:
    """Objects that fail where a test plans it, or by chance, on top of any others.

    ``chance`` is the probability that a call fails, in a way that ``seed`` decides. ``delay`` is called before every
    call, with its kind and name: a test that simulates time or threads takes its time there. Listings lack the
    ``late_names`` objects that were put last.
    """

    def __init__(
        self,
        objects: Objects,
        *,
        chance: float = 0.0,
        seed: int = 0,
        delay: Callable[[ObjectCall, str], None] | None = None,
        late_names: int = 0,
    ) -> None:
        self._objects, self._chance, self._delay = objects, chance, delay
        self.late_names = late_names
        self.calls: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._random = random.Random(seed)
        self._rules: list[_ObjectRule] = []
        self._put: list[str] = []  # the names, in the order in which they were put

    def fail(self, fault: ObjectFault, *, on: ObjectCall, call: int | None = 1, prefix: str = "") -> None:
        """Fail the ``call``-th call from now on, or every one with None, on names that begin with ``prefix``."""
        with self._lock:
            self._rules.append(_ObjectRule(fault, on, call, prefix))

    def heal(self) -> None:
        """Cancel all faults, also those by chance."""
        with self._lock:
            self._rules.clear()
            self._chance = 0.0

    def _fault(self, call: ObjectCall, name: str) -> ObjectFault | None:
        """Count a call; return how it fails, or None."""
        if self._delay is not None:
            self._delay(call, name)
        with self._lock:
            self.calls[call] += 1
            faults = [rule.fault for rule in self._rules if rule.takes(call, name)]
            if not faults and self._random.random() < self._chance:
                faults = [self._random.choice(list(ObjectFault))]
        return faults[0] if faults else None

    def _call(self, call: ObjectCall, name: str, carry_out: Callable[[], _Result]) -> _Result:
        fault = self._fault(call, name)
        if fault is None:
            return carry_out()
        if fault is ObjectFault.UNANSWERED:
            carry_out()
        raise StorageUnavailable(self.where(name), reason=fault.value)

    def where(self, name: str = "") -> str:
        """Return the address of an object, for messages."""
        return self._objects.where(name)

    def put_new(self, name: str, *parts: Bytes) -> None:
        """Put an object, or fail before or after that."""

        def put() -> None:
            self._objects.put_new(name, *parts)
            with self._lock:
                self._put.append(name)

        self._call("put_new", name, put)

    def replace(self, name: str, data: Bytes, *, tag: str | None) -> str:
        """Replace an object, or fail before or after that."""
        return self._call("replace", name, lambda: self._objects.replace(name, data, tag=tag))

    def get(self, name: str) -> StoredObject:
        """Return a whole object, or fail."""
        return self._call("get", name, lambda: self._objects.get(name))

    def get_range(self, name: str, start: int, size: int) -> memoryview:
        """Return a part of an object, or fail."""
        return self._call("get_range", name, lambda: self._objects.get_range(name, start, size))

    def exists(self, name: str) -> bool:
        """Return whether there is such an object, or fail."""
        return self._call("exists", name, lambda: self._objects.exists(name))

    def delete(self, *names: str) -> None:
        """Delete objects, or fail before, after or in the midst of that."""
        first = names[0] if names else ""
        fault = self._fault("delete", first)
        done = {None: len(names), ObjectFault.UNANSWERED: len(names), ObjectFault.CUT: len(names) // 2}.get(fault, 0)
        self._objects.delete(*names[:done])
        if fault is not None:
            raise StorageUnavailable(self.where(first), reason=fault.value)

    def names(self, prefix: str, *, after: str = "") -> Iterator[str]:
        """Return the names that begin with ``prefix`` without those that are late, or fail."""
        names = self._call("names", prefix, lambda: list(self._objects.names(prefix, after=after)))
        with self._lock:
            late = set(self._put[-self.late_names :]) if self.late_names else set()
        return iter([name for name in names if name not in late])

    def sizes(self, prefix: str) -> dict[str, int]:
        """Return the bytes of those that :meth:`names` returns, or fail as it does."""
        names = set(self.names(prefix))
        return {name: size for name, size in self._objects.sizes(prefix).items() if name in names}

    def close(self) -> None:
        """Close the objects below."""
        self._objects.close()
