"""``penstock event``: on a store, and on a server of FutoIn."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa

import penstock
from penstock.events import StoreEvents
from penstock.events.outbox import add_xfer_event
from penstock.server import Config, Server, Users

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cli.conftest import Call, Run

STREAM = "shop/orders"


@pytest.fixture(params=["store", "server"])
def stream(request: pytest.FixtureRequest, call: Call) -> Iterator[str]:
    """An event stream, by its name in a store, or by the address that a server has for it."""
    if request.param == "store":
        call("stream", "create", STREAM)
        yield STREAM
        return
    with Server(Config(store="data", anonymous=True, port=0, http_port=0)) as server:
        yield f"ws://127.0.0.1:{server.http_port}/futoin"


@pytest.fixture(scope="module")
def shop_of_all(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with streams, an empty database, and the position of another stream."""
    folder = tmp_path_factory.mktemp("shop")
    with penstock.connect(folder / "penstock-data") as store:
        store.create_stream(STREAM)
        store.create_stream("plant/wide", 2)
        StoreEvents(store, STREAM).add("ORDER", 1)
    folder.joinpath("empty.db").touch()
    folder.joinpath("far.id").write_text("1000\n")
    return folder


@pytest.fixture
def shop(shop_of_all: Path, here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same, which this process is in."""
    del here
    monkeypatch.chdir(shop_of_all)
    return shop_of_all


def added(call: Call, stream: str, *numbers: int) -> list[str]:
    return [call("event", "add", stream, "EVEN" if n % 2 == 0 else "ODD", str(n)).out.strip() for n in numbers]


def test_events_are_added_and_polled(call: Call, stream: str) -> None:
    """The same two commands do it, wherever the stream is."""
    ids = added(call, stream, 1, 2)
    found = [json.loads(line) for line in call("event", "poll", stream, "--json").lines]
    assert [event["id"] for event in found] == ids
    assert [event["data"] for event in found] == [1, 2]
    first = found[0]
    assert call("event", "poll", stream, "--want", "ODD").lines == [f"{ids[0]}\tODD\t{first['ts']}\t1"]
    assert [line.split("\t")[0] for line in call("event", "poll", stream, "--after", ids[0]).lines] == [ids[1]]
    assert json.loads(call("event", "add", stream, "A", "{}", "--json").out).keys() == {"stream", "id"}


def test_rare_events_are_found_behind_many_others(call: Call) -> None:
    """A page without any is not the end, and what was left out counts as delivered."""
    call("stream", "create", STREAM)
    with penstock.connect("penstock-data") as store, store.writer(STREAM) as writer:
        common = b'{"type":"COMMON","ts":"2026-01-01T00:00:00Z","data":0}'
        writer.write_batch([common] * 1_500)
    (rare,) = [call("event", "add", STREAM, "RARE", "1").out.strip()]
    (line,) = call("event", "poll", STREAM, "--want", "RARE").lines
    assert line.split("\t")[0] == rare
    assert call("event", "poll", STREAM, "--component", "c", "--want", "NEVER").lines == []
    assert call("event", "poll", STREAM, "--component", "c").lines == []


def test_component_is_polled_on_from_what_it_acknowledged(call: Call, stream: str) -> None:
    """An event that was printed, and not acknowledged, comes again."""
    ids = added(call, stream, 1, 2, 3)
    poll = ("event", "poll", stream, "--component", "billing")
    for _ in range(2):
        assert [line.split("\t")[0] for line in call(*poll).lines] == ids
    assert [line.split("\t")[0] for line in call(*poll, "--after", ids[1]).lines] == ids[2:]
    assert [line.split("\t")[0] for line in call(*poll).lines] == ids[2:]


def test_component_receives_every_event_once(call: Call, stream: str, here: Path) -> None:
    """Also in several runs, of which each ends after what it has printed."""
    receive = ("event", "receive", stream, "--component", "billing", "--position", "billing.id", "--limit", "1")
    assert added(call, stream, 1)
    assert call(*receive).out.endswith("\t1\n")
    ids = added(call, stream, 2)
    assert call(*receive).out.endswith("\t2\n")
    assert here.joinpath("billing.id").read_text() == f"{ids[0]}\n"


def test_receiver_whose_output_fails_ends_and_delivers_nothing(call: Call, run: Run) -> None:
    """It would get the same events for ever, or lose them."""
    with Server(Config(store="data", anonymous=True, port=0, http_port=0)) as server:
        url = f"ws://127.0.0.1:{server.http_port}/futoin"
        added(call, url, 1)
        result = run(f"penstock event receive {url} --component billing > /dev/full")
        assert (result.returncode, result.stderr) == (1, "penstock: No space left on device\n")
        assert call("event", "receive", url, "--component", "billing", "--limit", "1").out.endswith("\t1\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("add", STREAM, "order", "1"), "invalid event type 'order': use 1 to 16 of A-Z and '_'"),
        (("add", STREAM, "ORDER", "{"), "invalid DATA"),
        (("add", STREAM, "ORDER", "[" * 20_000 + "]" * 20_000), "invalid DATA: it is nested too deeply"),
        (("add", STREAM, "ORDER", "NaN"), "invalid event"),
        (("add", STREAM, "ORDER", '"\\ud800"'), "invalid event: the data is not a JSON value"),
        (("poll", STREAM, "--after", "3"), "no event of shop/orders has the id 3"),
        (("poll", STREAM, "--after", "3", "--component", "a"), "no event of shop/orders has the id 3"),
        (("poll", STREAM, "--after", "1" + 18 * "0"), "invalid --after"),
        (("receive", STREAM, "--component", "a", "--position", "."), "invalid --position"),
        (("receive", STREAM, "--component", "a", "--position", "no/x"), "there is no folder no"),
        (("receive", STREAM, "--component", "a", "--position", "/dev/full"), "not a regular file"),
        (("receive", STREAM, "--component", "a", "--position", "far.id"), "the file is of another stream"),
        *(
            ((command, target, *more), message)
            for command in ("poll", "receive")
            for target in (STREAM, "ws://127.0.0.1:1/x")
            for more, message in (
                (("--component", "a.b"), "invalid --component 'a.b': use 1 to 16 letters, digits and '_'"),
                (("--component", ""), "invalid --component ''"),
                (("--component", "LIVE"), "leave out --component"),
                (("--component", "a", "--want", "nonsense"), "invalid --want 'nonsense': use 1 to 16 of A-Z and '_'"),
            )
        ),
        (("receive", STREAM), "name a --component"),
        (("receive", STREAM, "--live", "--component", "a"), "name a --component"),
        (("receive", STREAM, "--live", "--position", "x"), "contradict"),
        *(
            (("add", address, "A", "1"), "invalid address")
            for address in ("http://host/x", "ws://h:99999/x", "ws://[::1/x", "ws://", "ws://h h/x", "ws://h/x#y")
        ),
        (("add", "ws://anna:secret@h/x", "A", "1"), "pass them with --user, and PENSTOCK_PASSWORD"),
        (("add", "ws://anna:secret@[::1/x", "A", "1"), "pass them with --user, and PENSTOCK_PASSWORD"),
        (("add", "wss://h/x", "A", "1", "--tls-ca", "no.crt"), "invalid --tls-ca no.crt: No such file"),
        (("add", "wss://h/x", "A", "1", "--tls-ca", "far.id"), "invalid --tls-ca far.id: use a certificate"),
        (("consumers", "ws://h/x"), "use scope/name, and name the server with --store"),
        (("add", "ws://host/x", "A", "1", "--no-tls"), "do not apply here"),
        (("add", STREAM, "A", "1", "--user", "anna"), "applies only to a server"),
        (("add", "plant/wide", "A", "1"), "several segments"),
        (("relay", "nonsense", STREAM), "invalid DATABASE_URL"),
        (("relay", "oracle+x://h/d", STREAM), "invalid DATABASE_URL"),
        *(
            (("relay", database, STREAM), "invalid DATABASE_URL")
            for database in (
                "mysql://h/d",
                "postgresql://h:port/d",
                "postgresql+asyncpg://h/d",
                "sqlite+aiosqlite:///x",
            )
        ),
        (("relay", "postgresql+psycopg2://h/d", STREAM), "psycopg2 is not installed"),
        (("relay", "sqlite:///missing.db", STREAM), "there is no database missing.db"),
        (("relay", "sqlite:///empty.db", STREAM), "no table evt_outbox"),
        (("relay", "sqlite:///empty.db", STREAM, "--table", 'a"b'), "invalid table name"),
        (("relay", "sqlite:///empty.db", "ws://h/x"), "use scope/name"),
    ],
)
def test_wrong_use_is_named(shop: Path, call: Call, arguments: tuple[str, ...], message: str) -> None:
    """In one line, with the exit code of incorrect usage; nothing is changed, and no password repeated."""
    before = sorted(shop.iterdir())
    result = call("event", *arguments)
    assert result.code == 2, result.err
    assert message in result.err
    assert result.err.count("\n") == 1
    assert "secret" not in result.err
    assert sorted(shop.iterdir()) == before


@pytest.mark.parametrize("command", ["add", "poll", "receive"])
def test_server_that_is_not_there_is_an_error(call: Call, command: str) -> None:
    """A receiver would wait for it otherwise, and show nothing."""
    more = {"add": ("A", "1"), "poll": (), "receive": ("--live",)}[command]
    result = call("event", command, "ws://127.0.0.1:1/futoin", *more)
    assert result.code == 1
    assert "cannot reach" in result.err


def test_consumers_are_listed_with_their_age_and_dropped(call: Call) -> None:
    """A dead one keeps the events of a stream for ever."""
    call("stream", "create", STREAM)
    added(call, STREAM, 1, 2)
    call("event", "poll", STREAM, "--component", "billing")
    (found,) = json.loads(call("event", "consumers", STREAM, "--json").out)
    assert found["name"] == "futoin.anonymous.billing"
    assert found["bytes_behind"] > 0
    assert 0 <= found["age_s"] < 600
    (line,) = call("event", "consumers", STREAM).lines
    assert line.split("\t")[:3] == [found["name"], found["position"], str(found["bytes_behind"])]
    wrong = call("event", "consumers", STREAM, "--drop", "nobody")
    assert wrong.code == 1
    assert "no consumer 'nobody'" in wrong.err
    assert call("event", "consumers", STREAM, "--drop", "futoin.anonymous.billing").out == ""


def test_relay_moves_what_is_committed(call: Call, plant: Path) -> None:
    """Run again, it goes on where it was."""
    assert call("event", "relay", "sqlite:///shop.db", STREAM).out == "evt_outbox to shop/orders: 1 event moved\n"
    engine = sa.create_engine(f"sqlite:///{plant}/shop.db")
    with engine.begin() as connection:
        add_xfer_event(connection, "A", 2)
        add_xfer_event(connection, "A", 3)
    engine.dispose()
    result = call("event", "relay", "sqlite:///shop.db", STREAM, "--json")
    assert json.loads(result.out) == {"stream": STREAM, "events": 2}
    with penstock.connect(plant / "penstock-data") as store:
        assert store.stream(STREAM).events == 4
    failed = call("event", "relay", "sqlite:///readings.txt", STREAM)
    assert failed.code == 1
    assert "the database failed" in failed.err


def test_consumer_before_the_head_is_listed(call: Call) -> None:
    """Another may have truncated the stream; the consumer that is furthest behind is the one to be seen."""
    call("stream", "create", STREAM)
    with penstock.connect("penstock-data") as store:
        store.register_consumer(STREAM, "slow")
        StoreEvents(store, STREAM).add("ORDER", 1)
        store.truncate_stream(STREAM, store.tail(STREAM))
        StoreEvents(store, STREAM).add("ORDER", 2)
    (found,) = json.loads(call("event", "consumers", STREAM, "--json").out)
    assert found["name"] == "slow"
    assert 0 < found["bytes_behind"] < 200


def test_reason_is_in_words_where_no_event_stream_is_found(call: Call) -> None:
    """People mix up the ports, and ws:// with wss://; numbers of errors do not help them."""
    with Server(Config(store="data", anonymous=True, port=0, http_port=0)) as server:
        web, flight = f"127.0.0.1:{server.http_port}", f"127.0.0.1:{server.port}"
        for address, words in (
            (f"ws://{web}/other", "there is no event stream at this address"),
            (f"ws://{flight}/futoin", "it is not an HTTP port"),
            (f"wss://{web}/futoin", "the server does not use TLS"),
            ("ws://localhost:1/futoin", "no server listens there"),
            ("ws://host.invalid/futoin", "unknown host name"),
        ):
            result = call("event", "add", address, "A", "1")
            assert result.code == 1
            assert result.err.startswith(f"penstock: cannot reach the store at {address}: {words}")


def test_credentials_of_the_environment_are_used_or_named(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token means nothing to FutoIn: the refusal says what does, instead of what a message lacks."""
    users = Users.open(Path("data/users.json"))
    users.add("anna", "secret")
    users.grant("anna", "admin", "*")
    key = users.new_mac_key("anna")
    with Server(Config(store="data", port=0, http_port=0)) as server:
        add = ("event", "add", f"ws://127.0.0.1:{server.http_port}/futoin", "A", "1")
        monkeypatch.setenv("PENSTOCK_TOKEN", "token")
        assert "use --user with PENSTOCK_PASSWORD or PENSTOCK_MAC_KEY" in call(*add).err
        monkeypatch.setenv("PENSTOCK_MAC_KEY", key)
        assert "name the user with --user or PENSTOCK_USER" in call(*add).err
        monkeypatch.setenv("PENSTOCK_USER", "anna")
        assert call(*add).code == 0
        monkeypatch.setenv("PENSTOCK_MAC_KEY", "x")
        assert "invalid PENSTOCK_MAC_KEY" in call(*add).err
        monkeypatch.delenv("PENSTOCK_MAC_KEY")
        monkeypatch.setenv("PENSTOCK_PASSWORD", "secret")
        assert call(*add).code == 0


def test_component_in_a_folder_is_that_of_no_user(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder has no users: a variable that is set for a server must not make another consumer."""
    call("stream", "create", STREAM)
    monkeypatch.setenv("PENSTOCK_USER", "anna")
    call("event", "poll", STREAM, "--component", "billing", "--after", "1000")
    (found,) = json.loads(call("event", "consumers", STREAM, "--json").out)
    assert found["name"] == "futoin.anonymous.billing"
