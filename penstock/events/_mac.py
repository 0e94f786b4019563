"""Message authentication codes of FutoIn: the text of a message that is signed, and its HMAC.

The text has every key of the message but ``sec``, sorted as JavaScript sorts, nulls left out, numbers as JavaScript
prints them: ``f:futoin.evt.gen:1.1:addEvent;p:data:a:true;;type:DEMO;;``.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["MAC_SCHEMES", "answer_mac", "mac_base", "mac_matches", "mac_of"]

_ALGORITHMS: Final = {
    "-hmac": {"MD5": "md5", "SHA224": "sha224", "SHA256": "sha256", "SHA384": "sha384", "SHA512": "sha512"},
    "-smac": {"HMD5": "md5", "HS256": "sha256", "HS384": "sha384", "HS512": "sha512"},
}
MAC_SCHEMES: Final = tuple(f"{scheme}:" for scheme in _ALGORITHMS)
"""How the ``sec`` of a signed message begins."""
_EXACT_MAX: Final = 2**53  # above it, JavaScript has only some of the whole numbers
_PLAIN_MAX: Final = 1e21  # from there on, JavaScript prints an exponent


def mac_base(message: Mapping[str, Any]) -> bytes:
    """Return what is signed of a message."""
    return "".join(_parts({key: value for key, value in message.items() if key != "sec"})).encode()


def mac_of(message: Mapping[str, Any], key: bytes, algorithm: str) -> bytes:
    """Return the code of a message, by an algorithm that :mod:`hashlib` knows."""
    return hmac.digest(key, mac_base(message), algorithm)


def mac_matches(message: Mapping[str, Any], key: bytes, *, scheme: str, algorithm: str, given: str) -> bool:
    """Whether the code that came with a message, in base64, is the right one; False for unknown algorithms."""
    name = _ALGORITHMS.get(scheme, {}).get(algorithm)
    try:
        code = base64.b64decode(given, validate=True)
    except (binascii.Error, ValueError):
        return False
    return name is not None and hmac.compare_digest(mac_of(message, key, name), code)


def answer_mac(answer: Mapping[str, Any], key: bytes, *, scheme: str, algorithm: str) -> str:
    """Return the code of an answer in base64, by the algorithm of its request, which has matched."""
    return base64.b64encode(mac_of(answer, key, _ALGORITHMS[scheme][algorithm])).decode()


def _parts(value: Mapping[str, Any]) -> Iterator[str]:
    for key in sorted(value, key=_utf16):
        found = value[key]
        if found is not None:
            yield f"{key}:"
            if isinstance(found, list):
                yield from _parts({str(index): element for index, element in enumerate(found)})
            elif isinstance(found, dict):
                yield from _parts(found)
            else:
                yield _scalar(found)
            yield ";"


def _utf16(key: str) -> bytes:
    return key.encode("utf-16-be")


def _scalar(value: str | bool | float) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return _number(value)


def _number(value: float) -> str:
    """Return a number as JavaScript prints it, which has no whole numbers of its own."""
    if isinstance(value, int) and abs(value) <= _EXACT_MAX:
        return str(value)
    try:
        return _double(float(value))
    except OverflowError:
        return "null"  # which is how JavaScript prints infinity


def _double(value: float) -> str:
    if value == 0:
        return "0"
    if value == int(value) and abs(value) < _PLAIN_MAX:
        return _digits(value)
    mantissa, _, exponent = repr(value).partition("e")
    if not exponent:
        return mantissa
    power = int(exponent)
    if -7 < power < 0:  # JavaScript prints 0.00001 where Python prints 1e-05
        sign, digits = ("-", mantissa[1:]) if mantissa.startswith("-") else ("", mantissa)
        return f"{sign}0.{'0' * (-power - 1)}{digits.replace('.', '')}"
    return f"{mantissa.removesuffix('.0')}e{power:+d}"


def _digits(value: float) -> str:
    """Return a whole number by its shortest digits, filled up with zeros."""
    mantissa, _, exponent = repr(value).partition("e")
    if not exponent:
        return mantissa.removesuffix(".0")
    whole, _, fraction = mantissa.partition(".")
    return whole + fraction.removesuffix("0" if fraction == "0" else "").ljust(int(exponent), "0")
