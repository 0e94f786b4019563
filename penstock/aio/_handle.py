"""What all asynchronous handles have in common: an inner handle that waits, and the threads in which it does.

``in_thread`` makes an asynchronous method of each method of the inner handle that needs no more than that, with the
same parameters, the same result and the same help.
"""

from __future__ import annotations

import functools
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any, Concatenate, Final, Generic, ParamSpec, TypeVar

from penstock import forks
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator
    from types import TracebackType
    from typing import Self

    from penstock.aio._threads import Threads

__all__ = ["AsyncHandle", "ClosedAtEnd", "Opening", "in_thread"]

P = ParamSpec("P")
T = TypeVar("T")
N = TypeVar("N")
H = TypeVar("H", bound="ClosedAtEnd")


class AsyncHandle(Generic[N]):
    """An asynchronous handle: tasks of the event loop in which it was opened may share it."""

    def __init__(self, inner: N, threads: Threads) -> None:
        forks.guard(self)
        self._inner: Final = inner
        self._threads: Final = threads

    async def _call(self, step: Callable[[], T], undo: Callable[[T], object] | None = None) -> T:
        self._threads.check(self)
        return await self._threads.call(step, undo=undo)

    async def _close(self, step: Callable[[], object]) -> None:
        """Take the last step; with the store, everything was closed already."""
        self._threads.check(self)
        if not self._threads.is_closed:
            await self._threads.call(step)


def in_thread(
    method: Callable[Concatenate[Any, P], T],
) -> Callable[Concatenate[AsyncHandle[Any], P], Coroutine[Any, Any, T]]:
    """Return the asynchronous form of a method: it runs in a thread, to its end, also if the task is cancelled."""
    name = method.__name__

    @functools.wraps(method)
    async def call(self: AsyncHandle[Any], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._call(functools.partial(getattr(self._inner, name), *args, **kwargs))

    return call  # type: ignore[return-value]  # mypy takes the name of the first parameter for a part of the type


class ClosedAtEnd:
    """A handle that is closed at the end of its ``async with`` block."""

    async def close(self) -> None:
        """Release what the handle holds."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        """Close at the end of the block."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close; an error that is on its way already is not replaced by another."""
        with suppress(PenstockError) if error is not None else nullcontext():
            await self.close()


class Opening(Generic[H]):
    """A handle that is going to be opened: ``await`` it, or use it in ``async with``, which also closes it."""

    def __init__(self, open_handle: Callable[[], Coroutine[Any, Any, H]]) -> None:
        self._open_handle = open_handle
        self._handle: H | None = None

    def __await__(self) -> Generator[Any, None, H]:
        return self._open_handle().__await__()

    if not TYPE_CHECKING:  # or a type checker would find nothing wrong

        def __getattr__(self, name: str) -> None:
            raise AttributeError(f"it is not open yet, so it has no {name!r}: use it in 'async with', or await it")

        def __enter__(self) -> None:
            raise TypeError("use 'async with' in place of 'with'")

        def __exit__(self, *_: object) -> None: ...

    async def __aenter__(self) -> H:
        """Open the handle."""
        handle = await self._open_handle()
        self._handle = await handle.__aenter__()
        return self._handle

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the block of the handle."""
        assert self._handle is not None, "the block has begun"
        await self._handle.__aexit__(kind, error, trace)
