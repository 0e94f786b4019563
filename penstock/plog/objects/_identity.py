"""The identity of a store in a bucket, and whether the bucket can hold one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.errors import FormatUnknown, NoSuchObject, ObjectChanged, ObjectExists, StorageUnusable

if TYPE_CHECKING:
    from penstock.plog.objects._requests import Requests
    from penstock.ports import Objects

__all__ = ["check_bucket", "check_store", "identify"]

_NAME: Final = "store"
_TEXT: Final = b"penstock plogs, object format 1\n"
_TEXT_SIZE_MAX: Final = 256


def identify(requests: Requests, store_id: bytes) -> str:
    """Return the id of the store below this prefix: ``store_id`` if it is new; ``FormatUnknown`` if it is not ours."""
    objects, text = requests.objects, _TEXT + store_id.hex().encode() + b"\n"
    try:
        stored = requests.again(lambda: objects.get_range(_NAME, 0, _TEXT_SIZE_MAX))
    except NoSuchObject:
        listed = next(requests.again(lambda: objects.names("")), None)
        if listed is not None and not listed.startswith(("probe/", _NAME)):
            raise FormatUnknown(objects.where(), actual="other objects", known=_TEXT.decode().strip()) from None
        requests.put_own(_NAME, text)  # another process may be first
        stored = requests.again(lambda: objects.get_range(_NAME, 0, _TEXT_SIZE_MAX))
    return _id_in(stored, objects)


def check_store(objects: Objects) -> None:
    """Raise ``NoSuchObject`` if there is no store below this prefix, ``FormatUnknown`` if it is not ours."""
    _id_in(objects.get_range(_NAME, 0, _TEXT_SIZE_MAX), objects)


def _id_in(stored: memoryview, objects: Objects) -> str:
    if not bytes(stored).startswith(_TEXT):
        actual = bytes(stored).decode(errors="replace").partition("\n")[0]
        raise FormatUnknown(objects.where(_NAME), actual=actual, known=_TEXT.decode().strip())
    return bytes(stored)[len(_TEXT) :].decode(errors="replace").strip()


def check_bucket(requests: Requests, token: bytes) -> None:
    """Raise ``StorageUnusable`` if the bucket carries out puts whose condition does not hold."""
    objects, name = requests.objects, f"probe/{token.hex()}"
    try:
        requests.put_own(name, b"1")
        _expect_refusal(requests, name, f"{_LACKS}: a put of a new object replaced one that was there")
        tag = requests.again(lambda: objects.get(name)).tag
        requests.replace_own(name, b"2" + token, tag=tag)
        try:
            requests.again(lambda: objects.replace(name, b"3", tag=tag))
        except ObjectChanged:
            return
        raise StorageUnusable(objects.where(), reason=f"{_LACKS}: a put replaced another version than it named")
    finally:
        requests.again(lambda: objects.delete(name))


_LACKS: Final = "it does not enforce conditional puts, without which two owners would destroy each other's data"


def _expect_refusal(requests: Requests, name: str, reason: str) -> None:
    try:
        requests.again(lambda: requests.objects.put_new(name, b"1"))
    except ObjectExists:
        return
    raise StorageUnusable(requests.objects.where(), reason=reason)
