"""Checks of what all patterns take: a store, a function that handles events, and an event that says when to stop.

A function that only makes a coroutine, or a generator, does nothing when it is called: everything would count as
handled. So does an asyncio store whose calls nobody awaits.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Generator

from penstock.errors import BadArgument
from penstock.model import check_method, shown

__all__ = ["check_function", "check_returned", "check_stop", "check_store"]


def check_store(store: object) -> None:
    """Require a store of :func:`penstock.connect`."""
    check_method("store", store, "stream")
    if inspect.iscoroutinefunction(getattr(store, "stream", None)):
        raise BadArgument("invalid store: its methods are coroutines; use one of penstock.connect")


def check_function(handle: object) -> None:
    """Require a function, or another callable, that runs when it is called."""
    if not callable(handle):
        raise BadArgument(f"invalid handle {shown(handle)}: use a function")
    if _is_deferred(handle) or _is_deferred(getattr(handle, "__call__", None)):  # noqa: B004 - it may be `async def`
        raise BadArgument(f"invalid handle {shown(handle)}: it does not run when it is called; use a plain function")


def check_returned(returned: object) -> None:
    """Refuse what a handler returned if its work has still to be done by whoever awaits it, or iterates over it."""
    if not inspect.isawaitable(returned) and not isinstance(returned, Generator | AsyncGenerator):
        return
    text = shown(returned)
    if inspect.iscoroutine(returned):
        returned.close()  # which was never begun, and would say so when it is collected
    raise BadArgument(f"invalid handle: it returned {text} and did not run to its end; use a plain function")


def check_stop(stop: object) -> None:
    """Require a ``threading.Event``, or one of processes."""
    for method in ("is_set", "wait"):
        check_method("stop", stop, method)
    if inspect.iscoroutinefunction(getattr(stop, "wait", None)):
        raise BadArgument("invalid stop: an event of asyncio is not for threads; use a threading.Event")


def _is_deferred(function: object) -> bool:
    kinds = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    return any(is_kind(function) for is_kind in kinds)
