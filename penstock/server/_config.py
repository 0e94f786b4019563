"""How a server is set up: from a file, the environment and flags, each of which wins over those before it.

Settings have the same names everywhere: ``max_connections`` in ``penstock.toml`` is ``PENSTOCK_MAX_CONNECTIONS`` in the
environment and ``--max-connections`` on the command line. What is wrong is told with the place where it stands.
"""

from __future__ import annotations

import math
import re
import socket
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from penstock.errors import BadConfig
from penstock.model import UNDECODABLE
from penstock.server._addresses import is_loopback

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["CONFIG_FILE", "Config", "load_config"]

CONFIG_FILE: Final = "penstock.toml"
_PREFIX: Final = "PENSTOCK_"
_ENVIRONMENT: Final = "environment"
_COMMAND_LINE: Final = "command line"
_PROGRAM: Final = "Config"
_FILE_SIZE_MAX: Final = 1 << 20
_HOST_AND_PORT: Final = re.compile(r"[^\s/@,]+:\d{1,5}")
_PLOGS: Final = ("file:", "s3://", "az://", "cluster:")  # where several servers find the same plogs
_CPO: Final = ("sqlite:", "postgresql://", "postgresql+psycopg://")

Text = Annotated[str, Meta(min_length=1)]
Port = Annotated[int, Meta(ge=0, le=65_535)]
Seconds = Annotated[float, Meta(gt=0, le=86_400)]
Bytes = Annotated[int, Meta(ge=2 << 20, le=1 << 30)]  # the largest event and its frame fit into the smallest
Count = Annotated[int, Meta(ge=1, le=10_000_000)]


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a server: this list makes the keys of the file, the variables and the options.

    The description of a setting is its help on the command line, the title what its value is called there.
    """

    store: Text = "./penstock-data"  # an argument of its command
    host: Annotated[Text, Meta(description="The name or address to listen on.")] = "127.0.0.1"
    # PENS on a telephone
    port: Annotated[Port, Meta(description="The port of Arrow Flight; 0 selects a free port.")] = 7367
    block_port: Annotated[
        Port, Meta(description="The port for blocks of a server without TLS; 0 selects a free port.")
    ] = 0
    http_port: Annotated[Port, Meta(description="The port of health, metrics and FutoIn.")] = 7368
    futoin_stream: Annotated[Text, Meta(title="STREAM", description="The stream that is served at /futoin.")] = (
        "futoin/events"
    )
    futoin_filter: Annotated[
        Annotated[str, Meta(pattern=r"^\w+(\.\w+)*:\w+$")] | None,
        Meta(title="MODULE:FUNCTION", description="A Python function that decides which user gets which event."),
    ] = None
    futoin_archive: Annotated[
        Text | None, Meta(title="FOLDER", description="The archives that FutoIn reads before the head of a stream.")
    ] = None
    # With both, the store is there and not in the folder, which has users, certificates and caches then.
    plogs: Annotated[Text | None, Meta(title="URL", description="The plogs of a store that several servers share.")] = (
        None
    )
    cpo: Annotated[Text | None, Meta(title="URL", description="The control plane oracle of that store.")] = None
    advertise: Annotated[
        Text | None,
        Meta(title="HOST:PORT", description="The address that clients use. Default: host and port."),
    ] = None
    tls: Annotated[bool | None, Meta(description="Use TLS. Default: on, except on a loopback host.")] = None
    # None: our own, which is made in the store's folder
    tls_cert: Annotated[Text | None, Meta(title="FILE", description="A certificate instead of the generated one.")] = (
        None
    )
    tls_key: Annotated[Text | None, Meta(title="FILE", description="The key of the certificate.")] = None
    # Without TLS others on the network read everything, passwords too.
    allow_plain: Annotated[bool, Meta(description="Permit ports without TLS on a host that others can reach.")] = False
    anonymous: Annotated[bool, Meta(description="Serve without users, on a loopback host.")] = False
    # It takes a thread through which all bytes go; a user of this machine could take all of its memory anyway.
    refuse_compressed: Annotated[
        bool | None, Meta(description="Refuse compressed messages. Default: on, except on a loopback host.")
    ] = None
    max_connections: Annotated[
        int, Meta(ge=1, le=100_000, description="The maximum number of connections on each port.")
    ] = 1_000
    max_message_bytes: Annotated[Bytes, Meta(description="The maximum size of a message in bytes.")] = 16 << 20
    max_inflight_bytes: Annotated[Bytes, Meta(description="The maximum number of bytes in flight of one client.")] = (
        64 << 20
    )
    idle_timeout_s: Annotated[Seconds, Meta(description="The time after which a silent connection is closed.")] = 300.0
    header_timeout_s: Annotated[Seconds, Meta(description="The time limit for the head of a request.")] = 10.0
    shutdown_timeout_s: Annotated[Seconds, Meta(description="The time that a shutdown waits for requests.")] = 10.0
    maintenance_interval_s: Annotated[Seconds, Meta(description="How often streams are scaled and truncated.")] = 1.0
    # What there may be in all; those below end in a refusal that names the setting.
    max_user_share: Annotated[
        float, Meta(gt=0, le=1, description="The share of each limit that one user may have.")
    ] = 0.5
    max_calls: Annotated[Count, Meta(description="The maximum number of calls; each has a thread.")] = 4_000
    max_reads: Annotated[Count, Meta(description="The maximum number of reads that are being sent.")] = 256
    max_searches: Annotated[Count, Meta(description="The maximum number of streams of repositories being sent.")] = 8
    max_handles: Annotated[Count, Meta(description="The maximum number of open writers and readers.")] = 50_000
    max_uploads: Annotated[Count, Meta(description="The maximum number of large events being written.")] = 256
    max_watches: Annotated[Count, Meta(description="The maximum number of segments watched for clients.")] = 100_000
    max_transactions: Annotated[Count, Meta(description="The maximum number of open transactions.")] = 1_000
    max_prepared: Annotated[Count, Meta(description="The maximum number of prepared transactions.")] = 10_000
    max_streams: Annotated[Count, Meta(description="The maximum number of streams.")] = 10_000
    max_segments: Annotated[Count, Meta(description="The maximum number of segments of all streams.")] = 100_000
    max_groups: Annotated[Count, Meta(description="The maximum number of reader groups.")] = 10_000
    max_consumers: Annotated[Count, Meta(description="The maximum number of registered consumers.")] = 10_000
    max_password_checks: Annotated[
        int, Meta(ge=1, le=1_000, description="The maximum number of passwords checked at once, each with 64 MiB.")
    ] = 2
    max_waiting_logins: Annotated[
        Count, Meta(description="The maximum number of logins that wait for the check; each has a thread.")
    ] = 256
    max_log_lines: Annotated[Count, Meta(description="The maximum number of log lines of one kind in a minute.")] = 120
    log_format: Annotated[Literal["plain", "json"], Meta(description="The format of log lines.")] = "plain"

    def __post_init__(self) -> None:
        """Refuse values out of range, and settings that contradict each other, or what a server is."""
        for key, value in msgspec.structs.asdict(self).items():
            _converted(_PROGRAM, key, value, strict=True)
        try:
            _check_together(self)
        except _Contradiction as error:
            raise error.at(dict.fromkeys(_KINDS, _PROGRAM)) from error

    @property
    def is_local(self) -> bool:
        """Whether only this machine reaches the server."""
        return is_loopback(self.host)

    @property
    def advertised(self) -> str:
        """The address under which clients, and the other servers of the store, know this one."""
        if self.advertise is not None:
            return self.advertise
        is_unspecified = self.host in {"0.0.0.0", "::"}
        host = socket.gethostname() if is_unspecified else f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def refuses_compressed(self) -> bool:
        """Whether clients reach gRPC through a front."""
        return not self.is_local if self.refuse_compressed is None else self.refuse_compressed

    @property
    def uses_tls(self) -> bool:
        """Whether both ports speak TLS."""
        return not self.is_local or self.tls_cert is not None if self.tls is None else self.tls


_KINDS: Final = {field.name: field.type for field in msgspec.structs.fields(Config)}


def load_config(
    flags: Mapping[str, object] | None = None,
    *,
    environ: Mapping[str, str],
    path: Path | None = None,
) -> Config:
    """Return the settings; without ``path`` the file is ``penstock.toml`` here, if it is there. A flag of None is none.

    Names in the environment that are not settings belong to other programs. In the file they are mistakes.
    """
    values, places = dict[str, Any](), dict[str, str]()
    for key, value in _read(path).items():
        where = str(path or CONFIG_FILE)
        if key not in _KINDS:
            raise BadConfig(where, key, reason=f"unknown setting: use one of {', '.join(_KINDS)}")
        values[key], places[key] = _converted(where, key, value, strict=True), where
    for key in _KINDS:
        if (text := environ.get(_PREFIX + key.upper())) is not None:
            where = _ENVIRONMENT
            values[key], places[key] = _converted(where, key, text, strict=False), where
    for key, value in (flags or {}).items():
        if value is not None:
            where = _COMMAND_LINE
            values[key], places[key] = _converted(where, key, value, strict=True), where
    try:
        return Config(**values)
    except BadConfig as error:
        contradiction = error.__cause__
        assert isinstance(contradiction, _Contradiction), "each value by itself was checked"
        raise contradiction.at(places) from None


def _read(path: Path | None) -> dict[str, Any]:
    try:
        with (path or Path(CONFIG_FILE)).open("rb") as file:
            text = file.read(_FILE_SIZE_MAX).decode()
        return tomllib.loads(text)
    except FileNotFoundError:
        if path is None:
            return {}
        raise
    except UNDECODABLE as error:
        raise BadConfig(str(path or CONFIG_FILE), "the whole file", reason=f"it is not valid TOML ({error})") from error


def _converted(where: str, key: str, value: object, *, strict: bool) -> Any:  # noqa: ANN401
    """Return a value of the kind that the setting has; text from the environment may be any of them."""
    try:
        found = msgspec.convert(value, _KINDS[key], strict=strict)
    except msgspec.ValidationError as error:
        reason = _in_words(error)
    except UnicodeEncodeError:
        reason = "it is not a text"
    else:
        if not isinstance(found, float) or math.isfinite(found):
            return found
        reason = "use a finite number"
    raise BadConfig(where, _spelled(key, where), reason=f"invalid value {value!r}: {reason}")


def _spelled(key: str, where: str) -> str:
    """Return the name that a setting has in a place."""
    if where == _ENVIRONMENT:
        return _PREFIX + key.upper()
    return f"--{key.replace('_', '-')}" if where == _COMMAND_LINE and key != "store" else key


_WORDS: Final = (
    (r" - at .*", ""),
    (r"`", ""),
    (r" \| null", ""),
    (r"\bint\b", "a whole number"),
    (r"\bfloat\b", "a number"),
    (r"\bstr\b", "a text"),
    (r"\bbool\b", "true or false"),
    (r"^Expected", "use"),
    (r", got ", ", not "),
    (r" of length >= 1$", " that is not empty"),
    (r" <= (\S+)$", r" up to \1"),
    (r" >= (\S+)$", r" from \1 on"),
    (r" > (\S+)$", r" above \1"),
)


def _in_words(error: msgspec.ValidationError) -> str:
    """Return what msgspec found, in words for people who do not know Python."""
    text = str(error)
    for pattern, words in _WORDS:
        text = re.sub(pattern, words, text)
    return text


class _Contradiction(Exception):
    """Settings that do not go together; of ``keys``, the first that was given is wrong, or else the last.

    A setting that the reason names with a $ is spelled as the one that is wrong.
    """

    def __init__(self, *keys: str, reason: str) -> None:
        super().__init__(reason)
        self._keys, self._reason = keys, reason

    def at(self, places: Mapping[str, str]) -> BadConfig:
        """Return the error of the tree, with the place where the setting was given."""
        key = next((key for key in self._keys if key in places), self._keys[-1])
        where = places.get(key, "defaults")
        told = re.sub(r"\$(\w+)", lambda name: _spelled(name[1], where), self._reason)
        return BadConfig(where, _spelled(key, where), reason=told)


def _check_together(config: Config) -> None:
    if config.store == "memory:" or "://" in config.store:
        raise _Contradiction("store", reason=f"invalid value {config.store!r}: a server serves a folder")
    _check_cluster(config)
    if config.port == config.http_port != 0:
        raise _Contradiction(
            "http_port", "port", reason=f"$port and $http_port are both {config.port}: they have to differ"
        )
    if (config.tls_cert is None) != (config.tls_key is None):
        given, missing = ("tls_cert", "tls_key") if config.tls_key is None else ("tls_key", "tls_cert")
        raise _Contradiction(given, reason=f"${missing} is missing: both are needed, or neither")
    if config.tls_cert is not None and config.tls is False:
        raise _Contradiction("tls", reason="it is off, and there is a $tls_cert: leave one of them out")
    if not config.uses_tls and not config.is_local and not config.allow_plain:
        reason = f"it is off, and {config.host} is open to others, who could read passwords: $allow_plain permits it"
        raise _Contradiction("tls", reason=reason)
    if config.anonymous and not config.is_local:
        raise _Contradiction(
            "anonymous", reason=f"{config.host} is open to others: only a loopback host may do without users"
        )
    if config.max_inflight_bytes < config.max_message_bytes:
        reason = (
            f"$max_inflight_bytes, {config.max_inflight_bytes}, has no budget for a message of $max_message_bytes, "
        )
        raise _Contradiction("max_inflight_bytes", "max_message_bytes", reason=reason + str(config.max_message_bytes))


def _check_cluster(config: Config) -> None:
    if (config.plogs is None) != (config.cpo is None):
        given, missing = ("plogs", "cpo") if config.cpo is None else ("cpo", "plogs")
        raise _Contradiction(given, reason=f"${missing} is missing: both are needed, or neither")
    if config.plogs is not None and not config.plogs.startswith(_PLOGS):
        kinds = ", ".join(_PLOGS)
        raise _Contradiction("plogs", reason=f"unknown kind of address: use one that begins with {kinds}")
    if config.cpo is not None and not config.cpo.startswith(_CPO):
        kinds = ", ".join(_CPO)
        raise _Contradiction("cpo", reason=f"unknown kind of address: use one that begins with {kinds}")
    if config.advertise is not None and config.plogs is None:
        raise _Contradiction("advertise", reason="only servers that share a store advertise: $plogs and $cpo name it")
    if config.advertise is not None and not _HOST_AND_PORT.fullmatch(config.advertise):
        raise _Contradiction("advertise", reason=f"invalid value {config.advertise!r}: use host:port, as in plant:7367")
