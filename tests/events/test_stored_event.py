"""The bytes of an event of FutoIn in a stream, in which old events stay readable for ever."""

from __future__ import annotations

from typing import Final

import msgspec

from penstock.events._event import pack_event, unpack_events

TIME: Final = "2026-11-16T14:26:37Z"
STORED: Final = b'{"type":"ORDER_PAID","ts":"2026-11-16T14:26:37Z","data":{"order":17,"\xc3\xa9":[1.5,null,true]}}'
SENT: Final = (
    b'{"id":"96","type":"ORDER_PAID","data":{"order":17,"\xc3\xa9":[1.5,null,true]},"ts":"2026-11-16T14:26:37Z"}'
)


def test_stored_event_has_these_bytes() -> None:
    """Reader groups, archives and Spark read them without FutoIn: another form would need a new name."""
    assert pack_event("ORDER_PAID", {"order": 17, "é": [1.5, None, True]}, TIME) == STORED


def test_stored_event_is_sent_as_these_bytes() -> None:
    """The data as it was stored; a fraction of a second, which other writers may store, is left out."""
    fraction = STORED.replace(b"37Z", b"37.123456Z")
    for stored in (STORED, fraction):
        [event] = unpack_events([96], [stored])
        assert msgspec.json.encode(event) == SENT
