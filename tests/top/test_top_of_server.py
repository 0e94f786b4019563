"""``penstock top`` of a store that another process has open: users, and a server that goes away."""

from __future__ import annotations

import asyncio
import threading
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import argon2
import pytest

import penstock
from penstock.console import Overviews
from penstock.errors import NotPermitted, StoreUnreachable
from penstock.server import USERS_FILE, Config, Server, Users
from penstock.top import Query, _source, source_of
from penstock.top._app import TopApp
from tests.top.screens import until

if TYPE_CHECKING:
    from pathlib import Path

STREAM: Final = "plant/readings"
HIDDEN: Final = "secret/plans"


def serving(folder: Path, **settings: Any) -> Server:  # noqa: ANN401 - fields of the configuration
    return Server(Config(store=str(folder), http_port=0, **{"port": 0, "shutdown_timeout_s": 1.0} | settings))


def test_users_see_what_they_may_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of streams, groups and writers, and their rates, are for those who may read them."""
    monkeypatch.setattr(argon2, "PasswordHasher", partial(argon2.PasswordHasher, memory_cost=32))
    users = Users.open(tmp_path / USERS_FILE)
    for user, permission, pattern in (("anna", "admin", "*"), ("rita", "read", "plant/*"), ("nina", "read", "no/*")):
        users.add(user, "secret")
        users.grant(user, permission, pattern)  # type: ignore[arg-type]
    with ExitStack() as stack:
        server = stack.enter_context(serving(tmp_path))
        stores = {
            user: stack.enter_context(
                penstock.connect(f"penstock://127.0.0.1:{server.port}", user=user, password="secret", tls=False)
            )
            for user in ("anna", "rita", "nina")
        }
        admin = stores["anna"]
        for stream in (STREAM, HIDDEN):
            admin.create_stream(stream)
            with admin.writer(stream) as writer:
                writer.write_event(b"unread").result()
        admin.create_reader_group("both", [STREAM, HIDDEN])
        sources = {user: source_of(store, "server") for user, store in stores.items()}
        seen = {user: source.overview(Query(order="lag")) for user, source in sources.items()}
        assert [row.name for row in seen["anna"].streams] == [STREAM, HIDDEN]
        assert [(row.name, row.group) for row in seen["rita"].streams] == [(STREAM, None)]
        assert (seen["rita"].total, seen["nina"].total) == (1, 0)
        assert seen["anna"].streams[0].group == "both"
        assert sources["rita"].stream(STREAM).readers.groups_total == 0
        assert sources["anna"].stream(STREAM).readers.groups_total == 1
        with pytest.raises(NotPermitted, match="user rita may not read"):
            sources["rita"].stream(HIDDEN)


def test_a_server_that_goes_away_is_said_to_be_and_found_again(tmp_path: Path) -> None:
    """Servers are restarted while somebody watches; nobody should have to start the command again."""
    server = serving(tmp_path, anonymous=True)
    server.__enter__()
    address = f"penstock://127.0.0.1:{server.port}"
    with penstock.connect(address) as store:
        store.create_stream(STREAM)

        async def story() -> None:
            async with TopApp(source_of(store, address), address).run_test(size=(80, 24)) as pilot:
                await until(pilot, lambda lines: any(STREAM in line for line in lines))
                await asyncio.to_thread(server.__exit__, None, None, None)
                lines = await until(pilot, lambda lines: "NO NEW FIGURES" in lines[1])
                assert any(STREAM in line for line in lines), "the last figures stay"
                await pilot.press("question_mark", "escape", "down")  # keys are answered
                with serving(tmp_path, anonymous=True, port=server.port):
                    await until(pilot, lambda lines: "NO NEW FIGURES" not in lines[1])
                    await pilot.press("q")

        asyncio.run(story())


def test_a_silent_server_is_waited_for_two_seconds_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is stopped, or behind a cable that is cut, does not even refuse the connection."""
    monkeypatch.setattr(_source, "ANSWER_S", -0.9)  # only the slack that every call has
    answered, is_silent = threading.Event(), threading.Event()
    page = Overviews.page

    def silent_page(*given: Any, **wanted: Any) -> dict[str, Any]:  # noqa: ANN401 - as the method
        if is_silent.is_set():
            answered.wait(30)
        return page(*given, **wanted)

    monkeypatch.setattr(Overviews, "page", silent_page)
    with serving(tmp_path, anonymous=True) as server, penstock.connect(f"penstock://127.0.0.1:{server.port}") as store:
        source = source_of(store, "the server")
        assert source.overview(Query()).total == 0
        is_silent.set()
        with pytest.raises(StoreUnreachable, match="cannot reach the store at the server: no answer came within"):
            source.overview(Query())
        is_silent.clear()
        answered.set()
        assert source.overview(Query()).total == 0
