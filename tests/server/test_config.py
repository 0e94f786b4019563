"""The settings of a server: where they come from, which wins, and what is refused."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.client import _address
from penstock.errors import BadConfig
from penstock.server._config import Config, load_config
from tests.sources import ROOT


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, which this process is in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(text: str) -> None:
    Path("penstock.toml").write_text(text)


def test_defaults_open_nothing_to_others() -> None:
    """A user who starts a server to try it out does not give the network their data."""
    config = load_config(environ={})
    assert config == Config()
    assert config.is_local
    assert not config.anonymous


def test_flags_win_over_the_environment_and_that_over_the_file() -> None:
    """The nearer to the moment, the more it counts."""
    write("port = 1\nhttp_port = 2\nmax_connections = 3\n")
    config = load_config({"port": 7, "tls": None}, environ={"PENSTOCK_PORT": "5", "PENSTOCK_HTTP_PORT": "6"})
    assert (config.port, config.http_port, config.max_connections) == (7, 6, 3)


def test_every_setting_can_be_given_everywhere() -> None:
    """One name for one thing."""
    given: dict[str, object] = {
        "store": "elsewhere",
        "host": "::1",
        "port": 1,
        "block_port": 30,
        "http_port": 2,
        "futoin_stream": "plant/alarms",
        "futoin_filter": "acme.events:may_get",
        "futoin_archive": "/archive",
        "plogs": "file:/plogs",
        "cpo": "sqlite:/cpo.db",
        "advertise": "plant:7367",
        "tls": True,
        "tls_cert": "a.crt",
        "tls_key": "a.key",
        "allow_plain": True,
        "anonymous": True,
        "refuse_compressed": True,
        "max_connections": 3,
        "max_message_bytes": 4 << 20,
        "max_inflight_bytes": 5 << 20,
        "idle_timeout_s": 6.5,
        "header_timeout_s": 7.5,
        "shutdown_timeout_s": 8.5,
        "maintenance_interval_s": 9.5,
        "max_user_share": 0.1,
        "max_calls": 11,
        "max_reads": 12,
        "max_searches": 25,
        "max_handles": 13,
        "max_uploads": 14,
        "max_watches": 15,
        "max_transactions": 16,
        "max_prepared": 17,
        "max_streams": 18,
        "max_segments": 19,
        "max_groups": 20,
        "max_consumers": 21,
        "max_password_checks": 22,
        "max_waiting_logins": 23,
        "max_log_lines": 24,
        "log_format": "json",
    }
    assert list(given) == list(Config.__struct_fields__)
    wanted = Config(**given)  # type: ignore[arg-type]
    assert load_config(given, environ={}) == wanted
    environ = {f"PENSTOCK_{key.upper()}": str(value) for key, value in given.items()}
    assert load_config(environ=environ) == wanted
    write("\n".join(f"{key} = {msgspec.json.encode(value).decode()}" for key, value in given.items()))
    assert load_config(environ={}) == wanted


def test_the_file_that_the_page_shows_is_read() -> None:
    """A newcomer copies it, and a name that is no setting keeps the server from starting."""
    page = (ROOT / "docs" / "server.md").read_text()
    (shown,) = re.findall(r"```text\n(# penstock\.toml\n.*?)```", page, re.DOTALL)
    write(shown)
    config = load_config(environ={})
    assert (config.store, config.host, config.log_format) == ("/var/lib/penstock", "0.0.0.0", "json")


def test_file_may_be_anywhere(here: Path) -> None:
    """But then it has to be there."""
    elsewhere = here / "etc.toml"
    elsewhere.write_text("port = 1")
    write("port = 2")
    assert load_config(environ={}, path=elsewhere).port == 1
    with pytest.raises(FileNotFoundError):
        load_config(environ={}, path=here / "missing.toml")


def test_variables_of_others_are_left_alone() -> None:
    """Kubernetes sets PENSTOCK_SERVICE_HOST for a service of this name; test runs have variables of their own, too."""
    assert load_config(environ={"PENSTOCK_SERVICE_HOST": "10.0.0.1", "PENSTOCK_EXPLORE": "1", "PORT": "7"}) == Config()


@pytest.mark.parametrize(
    ("text", "key", "reason"),
    [
        ("prot = 1", "prot", "unknown setting: use one of store, host, port"),
        ("[server]\nport = 1", "server", "unknown setting"),
        ('port = "7367"', "port", "invalid value '7367': use a whole number, not a text"),
        ("port = 65536", "port", "invalid value 65536: use a whole number up to 65535"),
        ("port = -1", "port", "invalid value -1: use a whole number from 0 on"),
        ("port = 1.5", "port", "invalid value 1.5"),
        ("port = true", "port", "invalid value True: use a whole number, not true or false"),
        ('host = ""', "host", "invalid value ''"),
        ("tls = 1", "tls", "invalid value 1: use true or false, not a whole number"),
        ("idle_timeout_s = 0", "idle_timeout_s", "invalid value 0"),
        ("idle_timeout_s = nan", "idle_timeout_s", "invalid value nan"),
        ("idle_timeout_s = inf", "idle_timeout_s", "invalid value inf"),
        ('log_format = "xml"', "log_format", "invalid value 'xml'"),
        ("max_message_bytes = 1024", "max_message_bytes", "invalid value 1024: use a whole number from 2097152 on"),
        ("max_connections = 0", "max_connections", "invalid value 0"),
        ("port", "the whole file", "it is not valid TOML"),
        ("port = 1\nport = 2", "the whole file", "it is not valid TOML"),
    ],
)
def test_mistake_in_the_file_is_told_with_file_and_key(text: str, key: str, reason: str) -> None:
    """The user who wrote it finds it at once."""
    write(text)
    with pytest.raises(BadConfig) as mistake:
        load_config(environ={})
    assert str(mistake.value).startswith(f"penstock.toml: {key}: {reason}")


def test_file_that_is_no_text_is_told() -> None:
    """Somebody named the wrong file."""
    Path("penstock.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(BadConfig, match="it is not valid TOML"):
        load_config(environ={})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PENSTOCK_PORT", "tcp://10.0.0.1:7367"),
        ("PENSTOCK_TLS", "perhaps"),
        ("PENSTOCK_MAINTENANCE_INTERVAL_S", "inf"),
        ("PENSTOCK_MAX_CONNECTIONS", ""),
    ],
)
def test_mistake_in_the_environment_is_told_with_its_name(name: str, value: str) -> None:
    """The environment is not in sight, so the error says where to look."""
    with pytest.raises(BadConfig, match=f"^environment: {name}: invalid value"):
        load_config(environ={name: value})


def test_mistake_on_the_command_line_is_told_with_its_name() -> None:
    """Also where the command line itself did not notice."""
    with pytest.raises(BadConfig, match=r"^command line: --port: invalid value 70000"):
        load_config({"port": 70_000}, environ={})


@pytest.mark.parametrize(
    ("flags", "key"),
    [
        ({"store": "memory:"}, "store"),
        ({"store": "penstock://localhost:7367"}, "store"),
        ({"port": 7368}, "port"),
        ({"http_port": 7367}, "http_port"),
        ({"tls_cert": "a.crt"}, "tls_cert"),
        ({"tls_key": "a.key"}, "tls_key"),
        ({"tls": False, "tls_cert": "a.crt", "tls_key": "a.key"}, "tls"),
        ({"tls": False, "host": "0.0.0.0"}, "tls"),
        ({"tls": False, "host": "example.com"}, "tls"),
        ({"anonymous": True, "host": "0.0.0.0"}, "anonymous"),
        ({"max_inflight_bytes": 8 << 20}, "max_inflight_bytes"),
        ({"max_message_bytes": 128 << 20}, "max_message_bytes"),
    ],
)
def test_contradiction_is_told(flags: dict[str, object], key: str) -> None:
    """A server that guessed which of the two was meant would guess wrong."""
    name = key if key == "store" else f"--{key.replace('_', '-')}"
    with pytest.raises(BadConfig, match=f"^command line: {name}: "):
        load_config(flags, environ={})


@pytest.mark.parametrize(
    "settings",
    [
        {"max_connections": -1},
        {"max_connections": True},
        {"port": 70_000},
        {"port": "7367"},
        {"max_user_share": math.nan},
        {"max_user_share": 2.0},
        {"idle_timeout_s": math.inf},
        {"max_message_bytes": 0},
        {"log_format": "xml"},
        {"store": ""},
        {"store": "memory:"},
        {"port": 7368},
        {"tls_key": "a.key"},
        {"tls": False, "host": "0.0.0.0"},
        {"anonymous": True, "host": "0.0.0.0"},
        {"max_inflight_bytes": 8 << 20},
    ],
)
def test_settings_of_a_program_are_checked_as_well(settings: dict[str, Any]) -> None:
    """A server that a program starts was open to everybody on the network, without users, if the program said so."""
    with pytest.raises(BadConfig, match=r"^Config: \w+: ") as refused:
        Config(**settings)
    assert refused.type is BadConfig, "the error of the tree, and no other"


@pytest.mark.parametrize(
    ("flags", "environ", "message"),
    [
        ({"tls": False, "host": "0.0.0.0"}, {}, "^command line: --tls: .*: --allow-plain permits it$"),
        (
            {"host": "0.0.0.0"},
            {"PENSTOCK_TLS": "false"},
            "^environment: PENSTOCK_TLS: .*: PENSTOCK_ALLOW_PLAIN permits it$",
        ),
        ({"tls_cert": "a.crt"}, {}, "^command line: --tls-cert: --tls-key is missing"),
    ],
)
def test_other_settings_are_spelled_as_the_wrong_one(
    flags: dict[str, object], environ: dict[str, str], message: str
) -> None:
    """A user of the command line reads about options, not about keys of a file."""
    with pytest.raises(BadConfig, match=message):
        load_config(flags, environ=environ)


def test_clients_know_the_default_port() -> None:
    """``penstock://host`` is enough for a server that was started without a word about ports."""
    assert Config().port == _address._PORT
    assert {Config().port, Config().http_port}.isdisjoint({9090, 9091}), "where Prometheus is"


def test_contradiction_is_told_where_it_stands() -> None:
    """One of the two may be a default."""
    write("tls = false")
    with pytest.raises(BadConfig, match=r"^penstock.toml: tls: "):
        load_config({"host": "0.0.0.0"}, environ={})


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_plain_ports_are_for_this_machine(host: str) -> None:
    """Nothing can listen in on this machine; certificates would only be in the way."""
    assert not load_config({"host": host}, environ={}).uses_tls
    assert load_config({"host": host, "tls": True}, environ={}).uses_tls
    assert load_config({"host": host, "tls_cert": "a.crt", "tls_key": "a.key"}, environ={}).uses_tls


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.com", "localhost.example.com"])
def test_ports_that_others_reach_speak_tls(host: str) -> None:
    """Unless it is forced."""
    assert load_config({"host": host}, environ={}).uses_tls
    assert not load_config({"host": host, "tls": False, "allow_plain": True}, environ={}).uses_tls


def test_several_ports_may_be_left_to_the_system() -> None:
    """Tests do that; any free port is another one each time."""
    assert load_config({"port": 0, "http_port": 0}, environ={}).port == 0
