"""Opening plogs by the address of a bucket, with settings in its query."""

from __future__ import annotations

import threading
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from penstock.errors import BadArgument
from penstock.plog._bucket_use import BucketUse
from penstock.plog.objects._cache import ObjectCache
from penstock.plog.objects._identity import identify
from penstock.plog.objects._plogs import ObjectPlogs
from penstock.plog.objects._requests import Requests
from penstock.plog.objects._settings import ObjectSettings
from penstock.ports import Bucket, BucketAddress, SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.cpo import Cpo
    from penstock.ports import Objects

__all__ = ["check_settings", "identify_store", "open_cache", "open_object_plogs"]

T = TypeVar("T")
_OWNERS: Final = "plogs/bucket"  # an oracle is that of one store
_TYPES: Final = {"int": int, "float": float, "str": str}


@dataclass(frozen=True, slots=True, kw_only=True)
class _CacheSettings:
    """Where copies of objects are, and how many bytes of them."""

    cache_folder: str = ""  # none: copies are in memory alone
    cache_size_max: int = 1 << 30  # bytes in the folder
    cache_memory_max: int = 64 << 20  # bytes in memory, mostly of objects that were just put


def open_object_plogs(url: str, *, cpo: Cpo | None = None, options: Mapping[str, str] | None = None) -> ObjectPlogs:
    """Open the plogs at ``s3://bucket/prefix`` or ``az://container/prefix``, created if there are none.

    With ``cpo``, an owner before publishes nothing there any more. ``options`` have the names that obstore gives them
    (``access_key_id``, ``endpoint``, ...); what they lack comes from the environment.
    """
    address = BucketAddress.parse(url)
    settings, cache_settings = parse_settings(address.settings)
    bucket = Bucket(address, options=options)
    cache = _cache(bucket, cache_settings, None)
    try:
        return ObjectPlogs(
            bucket,
            settings=settings,
            cache=cache,
            use=lambda silent_s: BucketUse(bucket.counts.read(), cache.counts(), silent_s),
            own=None if cpo is None else lambda: cpo.next_epoch(_OWNERS),
        )
    except BaseException:
        cache.close()
        raise


def identify_store(url: str, store_id: bytes) -> str:
    """Return the id of the store in a bucket, without taking it over; a new store gets this one."""
    address = BucketAddress.parse(url)
    settings, _ = parse_settings(address.settings)
    bucket, pause = Bucket(address), threading.Event().wait
    try:
        requests = Requests(bucket, clock=SystemClock(), pause=pause, unavailable_max_s=settings.unavailable_max_s)
        return identify(requests, store_id)
    finally:
        bucket.close()


def open_cache(
    objects: Objects, query: Mapping[str, str], *, folder: Callable[[], Path | None], size_max: int
) -> ObjectCache:
    """Open the cache of a process that only reads, by the settings of an address.

    Without a folder in them, ``folder`` finds one, which has at most ``size_max`` bytes unless they say otherwise.
    """
    settings = parse_settings({"cache_size_max": str(size_max), **query})[1]
    return _cache(objects, settings, None if settings.cache_folder else folder())


def _cache(objects: Objects, settings: _CacheSettings, folder: Path | None) -> ObjectCache:
    return ObjectCache(
        objects,
        folder=Path(settings.cache_folder) if settings.cache_folder else folder,
        memory_max=settings.cache_memory_max,
        disk_max=settings.cache_size_max,
    )


def check_settings(query: Mapping[str, str]) -> None:
    """Raise ``BadArgument`` if a setting of an address is unknown or invalid."""
    parse_settings(query)


def parse_settings(query: Mapping[str, str]) -> tuple[ObjectSettings, _CacheSettings]:
    """Return the settings of an address."""
    known = {field.name: _TYPES[str(field.type)] for kind in (ObjectSettings, _CacheSettings) for field in fields(kind)}
    unknown = sorted(set(query) - set(known))
    if unknown:
        raise BadArgument(f"unknown setting {unknown[0]!r} of an object store: use {', '.join(known)}")
    values = {name: _parse(name, text, known[name]) for name, text in query.items()}
    return _pick(ObjectSettings, values), _pick(_CacheSettings, values)


def _parse(name: str, text: str, kind: type) -> object:
    try:
        value = kind(text)
    except ValueError:
        value = None
    if value is None or (kind is not str and not 0 <= value < float("inf")):
        raise BadArgument(f"invalid {name} {text!r}: use a number from 0 on")
    return value


def _pick(kind: type[T], values: Mapping[str, Any]) -> T:
    names = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: value for name, value in values.items() if name in names})
