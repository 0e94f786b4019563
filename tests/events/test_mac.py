"""Signed messages: the signed text is what JavaScript makes of the same message."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
from typing import TYPE_CHECKING, Any

import pytest
from websockets.asyncio.server import serve

from penstock.errors import FutoinError
from penstock.events import Generator
from penstock.events._mac import mac_base, mac_matches

if TYPE_CHECKING:
    from collections.abc import Callable

    from websockets.asyncio.server import ServerConnection

# What Node prints for each of these numbers.
NUMBERS = {
    1e21: "1e+21",
    1e20: "100000000000000000000",
    123456789012345680000: "123456789012345680000",
    1e-7: "1e-7",
    0.00001: "0.00001",
    1.5e-6: "0.0000015",
    -0.0: "0",
    1.0: "1",
    12345678901234567: "12345678901234568",
    1e300: "1e+300",
    -1.25e-9: "-1.25e-9",
    5e-324: "5e-324",
    0.1: "0.1",
    2**53 + 1: "9007199254740992",
    1.7976931348623157e308: "1.7976931348623157e+308",
    -1e-6: "-0.000001",
    10**400: "null",
}


def test_signed_text_is_that_of_the_specification() -> None:
    """Keys are sorted, nulls are left out, the signature itself is not signed."""
    data = {"b": [1, None, "x", 1.5], "a": True}
    message = {"f": "futoin.evt.gen:1.1:addEvent", "p": {"type": "DEMO", "data": data}, "sec": "-smac:…"}
    assert mac_base(message) == b"f:futoin.evt.gen:1.1:addEvent;p:data:a:true;b:0:1;2:x;3:1.5;;;type:DEMO;;"


@pytest.mark.parametrize(("number", "printed"), NUMBERS.items())
def test_numbers_are_printed_as_javascript_prints_them(number: float, printed: str) -> None:
    """Or a signature of a reference client would not match."""
    assert mac_base({"n": number}) == f"n:{printed};".encode()


def test_keys_and_indexes_are_sorted_as_javascript_sorts() -> None:
    """It compares UTF-16, and indexes of an array as texts."""
    assert mac_base({"\U00010000": 1, "\uffff": 2}) == "\U00010000:1;\uffff:2;".encode()
    assert mac_base({"a": list(range(11))}).startswith(b"a:0:0;1:1;10:10;2:2;")


@pytest.mark.parametrize(
    ("scheme", "algorithm", "name"),
    [("-hmac", "SHA224", "sha224"), ("-hmac", "MD5", "md5"), ("-smac", "HS256", "sha256")],
)
def test_right_code_matches_and_a_wrong_one_does_not(scheme: str, algorithm: str, name: str) -> None:
    """Neither does the code of another message, of another key, or of an unknown algorithm."""
    message, key = {"f": "x", "rid": "C1"}, b"secret"
    code = base64.b64encode(hmac.new(key, b"f:x;rid:C1;", getattr(hashlib, name)).digest()).decode()

    def matches(message: dict[str, str], key: bytes, algorithm: str, given: str) -> bool:
        return mac_matches(message, key, scheme=scheme, algorithm=algorithm, given=given)

    assert matches(message, key, algorithm, code)
    assert not matches(message | {"rid": "C2"}, key, algorithm, code)
    assert not matches(message, b"other", algorithm, code)
    assert not matches(message, key, "ROT13", code)
    assert not matches(message, key, algorithm, "no base64!")


KEY = base64.b64encode(b"a key of 32 bytes, more or less.").decode()


class SigningServer:
    """A server that answers every call with an id, signed as ``sign`` says."""

    def __init__(self, sign: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        self._sign = sign

    async def serve(self, peer: ServerConnection) -> None:
        async for text in peer:
            await peer.send(json.dumps(self._sign({"r": "1", "rid": json.loads(text)["rid"]})))


def signed(answer: dict[str, Any]) -> dict[str, Any]:
    code = hmac.new(base64.b64decode(KEY), mac_base(answer), "sha256").digest()
    return answer | {"sec": base64.b64encode(code).decode()}


async def added(sign: Callable[[dict[str, Any]], dict[str, Any]]) -> int:
    """Return the id that a client with a key takes from a server."""
    async with serve(SigningServer(sign).serve, "127.0.0.1", 0) as listening:
        port = next(iter(listening.sockets)).getsockname()[1]
        async with Generator(f"ws://127.0.0.1:{port}/", user="anna", mac_key=KEY) as generator:
            return await generator.add_event("A", 1)


def test_client_takes_a_signed_answer_and_refuses_every_other() -> None:
    """Or someone between client and server could say that an event is durable which never came there."""
    assert asyncio.run(added(signed)) == 1
    for forged in (
        lambda answer: answer,
        lambda answer: signed(answer) | {"r": "2"},
        lambda answer: signed(answer | {"rid": "C1"}) | {"rid": answer["rid"]},
        lambda answer: answer | {"sec": "no base64!"},
        lambda answer: answer | {"sec": None},
        lambda answer: signed({"e": "InternalError", "rid": answer["rid"]}) | {"e": "NotRegistered"},
        lambda answer: {"e": "Strange", "rid": answer["rid"]},
    ):
        with pytest.raises(FutoinError, match="SecurityError: the signature of the answer"):
            asyncio.run(added(forged))


def test_error_without_a_signature_is_the_error_of_the_call() -> None:
    """A server that does not know the key cannot sign; what it says is the reason, and claims nothing was done."""
    with pytest.raises(FutoinError, match="SecurityError: unknown key"):
        asyncio.run(added(lambda answer: {"e": "SecurityError", "edesc": "unknown key", "rid": answer["rid"]}))


def test_answers_of_another_connection_fit_no_call() -> None:
    """Numbers that began at 1 each time would let recorded answers, with their right signatures, be sent again."""
    rids = set()

    def recorded(answer: dict[str, Any]) -> dict[str, Any]:
        rids.add(answer["rid"])
        return signed(answer)

    for _ in range(3):
        asyncio.run(added(recorded))
    assert len(rids) == 3
