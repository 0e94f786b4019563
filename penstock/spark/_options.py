"""The options of ``format("penstock")``: texts in, values out; what is wrong is told with the option's name."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final, Literal, cast, get_args

from penstock.errors import BadArgument
from penstock.model import StreamCut, check_name, check_stream_name, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

__all__ = ["Address", "Format", "SinkOptions", "SourceOptions", "sink_options", "source_options"]

Format = Literal["raw", "json", "futoin"]
_SIZE: Final = re.compile(r"([0-9]{1,18})([kmgt]?)b?", re.IGNORECASE)
_UNITS: Final = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_OF_SPARK: Final = frozenset({"checkpointlocation", "queryname", "mode", "schema"})  # which it hands on to us
_EVENT_SIZE: Final = 1 << 20
_PARTITIONS_MAX: Final = 10_000
_LONG_MAX: Final = (1 << 63) - 1  # of Spark


@dataclass(frozen=True, slots=True)
class Address:
    """Where a store is, and who asks; the password is not shown."""

    store: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    tls_ca: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """How a stream is read."""

    address: Address
    stream: str
    start: StreamCut | Literal["earliest", "latest"] = "earliest"
    end: StreamCut | None = None
    max_bytes_per_trigger: int | None = None
    max_events_per_trigger: int | None = None
    align: bool = False
    max_event_size: int = _EVENT_SIZE
    format: Format = "raw"
    json_schema: str | None = None
    keep_corrupt: bool = False
    min_partitions: int | None = None
    fail_on_data_loss: bool = True
    mark_rows: bool = False
    consumer: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """How a stream is written."""

    address: Address
    stream: str
    event: str = "event"
    key: str | None = None
    pointer: str | None = None
    time: str | None = None


def source_options(given: Mapping[str, str]) -> SourceOptions:
    """Return the options of a source."""
    return cast("SourceOptions", _read(given, _SOURCE, SourceOptions, "read"))


def sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Return the options of a sink."""
    return cast("SinkOptions", _read(given, _SINK, SinkOptions, "write"))


def _read(
    given: Mapping[str, str], readers: Mapping[str, tuple[str, Callable[[str, str], object]]], kind: type, what: str
) -> object:
    texts = {name.lower(): str(text) for name, text in given.items()}
    known = {*readers, *_ADDRESS}
    for name in sorted(texts.keys() - known - _OF_SPARK):
        raise BadArgument(f"{shown(name)} is no option to {what} a stream with: {_hint(name, known)}")
    for name in ("store", "stream"):
        if not texts.get(name):
            raise BadArgument(f'the option {name!r} is missing: .option("{name}", "{_EXAMPLES[name]}")')
    for name in sorted(texts.keys() & known):
        if not texts[name]:
            raise BadArgument(f"the option {name!r} cannot be '': leave it out, or give it a value")
    values = {attribute: reader(name, texts[name]) for name, (attribute, reader) in readers.items() if name in texts}
    return kind(address=_address(texts), **values)


def _hint(name: str, known: Collection[str]) -> str:
    near = get_close_matches(name, known, 1)
    return f"do you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(known))}"


def _address(texts: Mapping[str, str]) -> Address:
    """Return where the store is; a folder by its whole path, because tasks run elsewhere."""
    given = {name: texts.get(name) for name in _ADDRESS}
    store = texts["store"]
    if store == "memory:":
        raise BadArgument("the store 'memory:' is in this process only: give Spark a folder, or a server")
    if "://" not in store:
        store = os.path.abspath(os.path.expanduser(store))
    return Address(**given | {"store": store})  # type: ignore[arg-type]


def _text(_: str, text: str) -> str:
    return text


def _stream(_: str, text: str) -> str:
    check_stream_name(text)
    return text


def _consumer(_: str, text: str) -> str:
    check_name("consumer", text)
    return text


def _whole(name: str, text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,18}", text) or int(text) < 1:
        raise BadArgument(f"the option {name!r} cannot be {shown(text)}: give a whole number above 0")
    return int(text)


def _partitions(name: str, text: str) -> int:
    if (count := _whole(name, text)) > _PARTITIONS_MAX:
        raise BadArgument(f"the option {name!r} cannot be {shown(text)}: at most {_PARTITIONS_MAX:,} tasks are planned")
    return count


def _size(name: str, text: str) -> int:
    found = _SIZE.fullmatch(text.strip())
    size = 0 if found is None else int(found[1]) << _UNITS[found[2].lower()]
    if not 0 < size <= _LONG_MAX:
        raise BadArgument(f"the option {name!r} cannot be {shown(text)}: give bytes, as in 1048576 or 64m")
    return size


def _flag(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise BadArgument(f"the option {name!r} cannot be {shown(text)}: it is true or false")
    return text.lower() == "true"


def _choice(*choices: str) -> Callable[[str, str], str]:
    def read(name: str, text: str) -> str:
        if text.lower() not in choices:
            raise BadArgument(f"the option {name!r} cannot be {shown(text)}: it is {' or '.join(map(repr, choices))}")
        return text.lower()

    return read


def _chosen(choices: Mapping[str, bool]) -> Callable[[str, str], bool]:
    read = _choice(*choices)
    return lambda name, text: choices[read(name, text)]


def _start(name: str, text: str) -> StreamCut | str:
    return text.lower() if text.lower() in ("earliest", "latest") else _cut(name, text)


def _end(name: str, text: str) -> StreamCut | None:
    return None if text.lower() == "latest" else _cut(name, text)


def _cut(name: str, text: str) -> StreamCut:
    try:
        return StreamCut.parse(text)
    except BadArgument as error:
        raise BadArgument(f"the option {name!r} is no place in a stream: {error}") from None


_EXAMPLES: Final = {"store": "./data", "stream": "plant/readings"}
_ADDRESS: Final = frozenset(one.name for one in fields(Address))
_SOURCE: Final[Mapping[str, tuple[str, Callable[[str, str], object]]]] = {
    "stream": ("stream", _stream),
    "start": ("start", _start),
    "end": ("end", _end),
    "max_bytes_per_trigger": ("max_bytes_per_trigger", _size),
    "max_events_per_trigger": ("max_events_per_trigger", _whole),
    "align": ("align", _chosen({"watermark": True, "none": False})),
    "max_event_size": ("max_event_size", _size),
    "format": ("format", _choice(*get_args(Format))),
    "json_schema": ("json_schema", _text),
    "on_corrupt": ("keep_corrupt", _chosen({"column": True, "fail": False})),
    "min_partitions": ("min_partitions", _partitions),
    "fail_on_data_loss": ("fail_on_data_loss", _flag),
    "mark_rows": ("mark_rows", _flag),
    "consumer": ("consumer", _consumer),
}
_SINK: Final[Mapping[str, tuple[str, Callable[[str, str], object]]]] = {
    "stream": ("stream", _stream),
    "event": ("event", _text),
    "key": ("key", _text),
    "pointer": ("pointer", _text),
    "time": ("time", _text),
}
