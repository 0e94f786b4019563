"""The options of ``format("penstock")``: from texts to values; an error names the option.

Case and underscores do not matter, so ``maxEventsPerTrigger`` is ``max_events_per_trigger``. Names of Kafka's source
are accepted where they mean the same.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final, Literal, cast, get_args

from penstock.errors import BadArgument
from penstock.model import Position, check_name, check_stream_name, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    _Reader = tuple[str, Callable[[str, str], object]]  # the attribute that an option becomes, and how it is read

__all__ = [
    "Address",
    "Format",
    "Place",
    "RepositoryOptions",
    "SinkOptions",
    "SourceOptions",
    "milliseconds_of",
    "plain_name",
    "repository_options",
    "sink_options",
    "source_options",
]

Format = Literal["raw", "json", "futoin"]
Place = Position | Literal["earliest", "latest"] | int  # the last is a time in milliseconds
_SIZE: Final = re.compile(r"([0-9]{1,18})([kmgt]?)b?", re.IGNORECASE)
_SIZE_UNITS: Final = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_OF_SPARK: Final = frozenset({"checkpointlocation", "queryname", "mode", "schema"})  # which it hands on to us
_SECRET: Final = "plogs_secret_"  # Spark hides the values of options that have "secret" in their names
_EVENT_SIZE: Final = 1 << 20
_PARTITIONS_MAX: Final = 10_000
_LONG_MAX: Final = (1 << 63) - 1  # options of Spark itself
_DURATION: Final = re.compile(r"(\d{1,9})\s*([a-z]+)\s*", re.IGNORECASE)
_DURATION_UNITS: Final = {
    "millisecond": 1,
    "second": 1000,
    "minute": 60_000,
    "hour": 3_600_000,
    "day": 86_400_000,
    "week": 604_800_000,
}


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a store, with credentials, which its repr does not show."""

    store: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    tls_ca: str | None = None
    plogs: str | None = None
    plogs_secrets: tuple[tuple[str, str], ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The options of a source."""

    address: Address
    streams: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None
    start: Place = "earliest"
    end: Place = "latest"
    max_bytes_per_trigger: int | None = None
    max_events_per_trigger: int | None = None
    align: bool = False
    max_event_size: int = _EVENT_SIZE
    format: Format = "raw"
    json_schema: str | None = None
    keep_corrupt: bool = False
    include_headers: bool = False
    min_partitions: int | None = None
    fail_on_data_loss: bool = True
    mark_rows: bool = False
    watermark_interval_ms: int | None = None
    event_time: str | None = None
    consumer: str | None = None

    @property
    def stream(self) -> str:
        """The stream, for code that reads exactly one."""
        [stream] = self.streams
        return stream


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """The options of a sink."""

    address: Address
    stream: str | None = None
    event: str = "event"
    key: str | None = None
    headers: str | None = None
    pointer: str | None = None
    time: str | None = None
    txn_app_id: str | None = None
    txn_version: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RepositoryOptions:
    """The options of a repository that is read as a table."""

    address: Address
    stream: str
    table: str = "texts"
    min_partitions: int | None = None


def repository_options(given: Mapping[str, str]) -> RepositoryOptions:
    """Parse the options of a repository."""
    texts = _named(given, _REPOSITORY, "read")
    if "stream" not in texts:
        raise BadArgument(_missing("stream"))
    return cast("RepositoryOptions", _read(texts, _REPOSITORY, RepositoryOptions))


def source_options(given: Mapping[str, str]) -> SourceOptions:
    """Parse the options of a source."""
    texts = _named(given, _SOURCE, "read")
    _check_streams(texts)
    return cast("SourceOptions", _read(texts, _SOURCE, SourceOptions))


def sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Parse the options of a sink."""
    texts = _named(given, _SINK, "write")
    found = cast("SinkOptions", _read(texts, _SINK, SinkOptions))
    if (found.txn_app_id is None) != (found.txn_version is None):
        raise BadArgument("the options 'txn_app_id' and 'txn_version' come together: give both, or neither")
    return found


def plain_name(name: str) -> str:
    """Return the name of an option in lower case, without underscores."""
    return name.lower().replace("_", "")


def _named(given: Mapping[str, str], readers: Mapping[str, _Reader], action: str) -> dict[str, str]:
    """Return the values by the canonical names of their options."""
    known = {*readers, *_ADDRESS}
    ours = {plain_name(name): name for name in known} | {
        spelling: name for spelling, name in _OF_KAFKA.items() if name in known
    }
    texts: dict[str, str] = {}
    for name, text in sorted(given.items()):
        plain = plain_name(name)
        if name.lower().startswith(_SECRET):
            texts[name.lower()] = str(text)
            continue
        if plain not in ours and plain not in _OF_SPARK:
            raise BadArgument(f"{shown(name.lower())} is not an option to {action} a stream with: {_hint(name, known)}")
        option = ours.get(plain)
        if option in texts:
            raise BadArgument(f"the option {option!r} is given twice: {shown(name)} is another spelling of it")
        if option is not None:
            texts[option] = str(text)
    for name, text in sorted(texts.items()):
        if not text:
            raise BadArgument(f"invalid value '' of the option {name!r}: leave it out, or give it a value")
    if "store" not in texts:
        raise BadArgument(_missing("store"))
    if "plogs" not in texts and any(name.startswith(_SECRET) for name in texts):
        raise BadArgument(f"the options '{_SECRET}…' are those of a bucket: name it with the option 'plogs'")
    return texts


def _read(texts: Mapping[str, str], readers: Mapping[str, _Reader], kind: type) -> object:
    values = {attribute: reader(name, texts[name]) for name, (attribute, reader) in readers.items() if name in texts}
    return kind(address=_address(texts), **values)


def _check_streams(texts: Mapping[str, str]) -> None:
    """Require exactly one of the options that name streams."""
    ways = [name for name in ("stream", "subscribe", "subscribe_pattern") if name in texts]
    if not ways:
        raise BadArgument(_missing("stream"))
    if len(ways) > 1:
        raise BadArgument(f"the options {ways[0]!r} and {ways[1]!r} exclude each other: both say which streams to read")


def _missing(name: str) -> str:
    return f'the option {name!r} is missing: .option("{name}", "{_EXAMPLES[name]}")'


def _hint(name: str, known: Collection[str]) -> str:
    near = get_close_matches(name.lower(), known, 1)
    return f"do you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(known))}"


def _address(texts: Mapping[str, str]) -> Address:
    """Return the address of the store; a folder as an absolute path, because tasks run in another folder."""
    given = {name: texts.get(name) for name in _ADDRESS}
    store = texts["store"]
    if store == "memory:":
        raise BadArgument("the store 'memory:' is in this process only: give Spark a folder, or a server")
    if "://" not in store:
        store = os.path.abspath(os.path.expanduser(store))
    secrets = tuple((name.removeprefix(_SECRET), text) for name, text in texts.items() if name.startswith(_SECRET))
    return Address(**given | {"store": store, "plogs_secrets": secrets})  # type: ignore[arg-type]


def _text(_: str, text: str) -> str:
    return text


def _stream(_: str, text: str) -> str:
    check_stream_name(text)
    return text


def _one_stream(name: str, text: str) -> tuple[str, ...]:
    return (_stream(name, text),)


def _streams(name: str, text: str) -> tuple[str, ...]:
    found = tuple(_stream(name, stream.strip()) for stream in text.split(","))
    if len({*found}) < len(found):
        raise BadArgument(f"the option {name!r} names a stream twice: {shown(text)}")
    return found


def _pattern(name: str, text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise BadArgument(
            f"invalid value {shown(text)} of the option {name!r}: not a regular expression, {error}"
        ) from None


def _consumer(_: str, text: str) -> str:
    check_name("consumer", text)
    return text


def _whole(name: str, text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,18}", text) or int(text) < 1:
        raise BadArgument(f"invalid value {shown(text)} of the option {name!r}: use a whole number above 0")
    return int(text)


def _partitions(name: str, text: str) -> int:
    if (count := _whole(name, text)) > _PARTITIONS_MAX:
        raise BadArgument(f"invalid value {shown(text)} of the option {name!r}: the limit is {_PARTITIONS_MAX:,} tasks")
    return count


def _size(name: str, text: str) -> int:
    found = _SIZE.fullmatch(text.strip())
    size = 0 if found is None else int(found[1]) << _SIZE_UNITS[found[2].lower()]
    if not 0 < size <= _LONG_MAX:
        raise BadArgument(f"invalid value {shown(text)} of the option {name!r}: use bytes, like 1048576 or 64m")
    return size


def _flag(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise BadArgument(f"invalid value {shown(text)} of the option {name!r}: use true or false")
    return text.lower() == "true"


def _choice(*choices: str) -> Callable[[str, str], str]:
    def read(name: str, text: str) -> str:
        if text.lower() not in choices:
            raise BadArgument(
                f"invalid value {shown(text)} of the option {name!r}: use {' or '.join(map(repr, choices))}"
            )
        return text.lower()

    return read


def _chosen(choices: Mapping[str, bool]) -> Callable[[str, str], bool]:
    read = _choice(*choices)
    return lambda name, text: choices[read(name, text)]


def _place(name: str, text: str) -> Place:
    """Parse a position in streams: earliest, latest, a time, or cuts."""
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        return cast("Literal['earliest', 'latest']", word)
    if ":" in text and "@" in text:
        return _cuts(name, text)
    try:
        return _time(name, text)
    except BadArgument:
        raise BadArgument(
            f"invalid value {shown(text)} of the option {name!r}: use earliest, latest, a cut like "
            "scope/name:0@88,1@124, milliseconds, or a time with its zone like 2026-11-01T08:00:00Z"
        ) from None


def _time(name: str, text: str) -> int:
    """Parse a time: milliseconds, or ISO 8601 with a zone, because the session's zone is not known here."""
    if re.fullmatch(r"[0-9]{1,18}", text.strip()):
        return int(text)
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise BadArgument(
            f"invalid value {shown(text)} of the option {name!r}: use milliseconds, or a time with its zone like "
            "2026-11-01T08:00:00Z"
        )
    return round(found.timestamp() * 1000)


def _cuts(name: str, text: str) -> Position:
    try:
        return Position.parse(text)
    except BadArgument as error:
        raise BadArgument(f"the option {name!r} is not a position in a stream: {error}") from None


def _version(name: str, text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise BadArgument(f"invalid value {shown(text)} of the option {name!r}: use a whole number, 0 or more")
    return int(text)


def _app_id(_: str, text: str) -> str:
    check_name("txn_app_id", text)
    return text


def milliseconds_of(option: str, length: str | timedelta) -> int:
    """Return a duration in milliseconds; an error names it as ``what``."""
    if isinstance(length, timedelta):
        found = round(length / timedelta(milliseconds=1))
    else:
        text = str(length).strip().lower().removeprefix("interval ")
        parts = _DURATION.findall(text)
        units = [unit.removesuffix("s") for _, unit in parts]
        if "".join(_DURATION.sub("", text).split()) or not parts or not {*units} <= _DURATION_UNITS.keys():
            raise BadArgument(f"invalid {option} {shown(length)}: use a duration like '10 minutes'")
        found = sum(int(count) * _DURATION_UNITS[unit] for (count, _), unit in zip(parts, units, strict=True))
    if found < 0:
        raise BadArgument(f"invalid {option} {shown(length)}: it must not be negative")
    return found


_EXAMPLES: Final = {"store": "./data", "stream": "plant/readings"}
_ADDRESS: Final = frozenset(attribute.name for attribute in fields(Address)) - {"plogs_secrets"}
_OF_KAFKA: Final = {
    "startingoffsets": "start",
    "endingoffsets": "end",
    "startingtimestamp": "start",
    "endingtimestamp": "end",
    "maxoffsetspertrigger": "max_events_per_trigger",
}
_REPOSITORY: Final[Mapping[str, _Reader]] = {
    "stream": ("stream", _stream),
    "table": ("table", _choice("texts", "revisions", "inventories")),
    "min_partitions": ("min_partitions", _partitions),
}
_SOURCE: Final[Mapping[str, _Reader]] = {
    "stream": ("streams", _one_stream),
    "subscribe": ("streams", _streams),
    "subscribe_pattern": ("pattern", _pattern),
    "start": ("start", _place),
    "end": ("end", _place),
    "max_bytes_per_trigger": ("max_bytes_per_trigger", _size),
    "max_events_per_trigger": ("max_events_per_trigger", _whole),
    "align": ("align", _chosen({"watermark": True, "none": False})),
    "max_event_size": ("max_event_size", _size),
    "format": ("format", _choice(*get_args(Format))),
    "json_schema": ("json_schema", _text),
    "on_corrupt": ("keep_corrupt", _chosen({"column": True, "fail": False})),
    "include_headers": ("include_headers", _flag),
    "min_partitions": ("min_partitions", _partitions),
    "fail_on_data_loss": ("fail_on_data_loss", _flag),
    "mark_rows": ("mark_rows", _flag),
    "watermark_interval": ("watermark_interval_ms", milliseconds_of),
    "event_time": ("event_time", _text),
    "consumer": ("consumer", _consumer),
}
_SINK: Final[Mapping[str, _Reader]] = {
    "stream": ("stream", _stream),
    "event": ("event", _text),
    "key": ("key", _text),
    "headers": ("headers", _text),
    "pointer": ("pointer", _text),
    "time": ("time", _text),
    "txn_app_id": ("txn_app_id", _app_id),
    "txn_version": ("txn_version", _version),
}
