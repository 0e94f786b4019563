"""The console of servers that share a store: the page of the cluster, and the answer of a server that stands by."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from playwright.sync_api import expect

import penstock
from penstock.console._app import _DOWNLOAD_CHUNK
from penstock.server import Server, local_cluster
from penstock.stream.read import EventInputStream
from tests.console.client import Client
from tests.console.pages import NARROW, check_fit, launched, window
from tests.server.apart import eventually
from tests.server.cluster import config_of, status_of

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_the_cluster_page_lists_the_owner_and_the_servers_that_stand_by(tmp_path: Path) -> None:
    """Who is to be restarted first is a question of which server owns the store, and for how long."""
    with Server(config_of(tmp_path, "a")) as owner:
        eventually(lambda: status_of(owner.http_port) == "ok")
        with Server(config_of(tmp_path, "b")) as standby:
            client = Client(owner.http_port)
            assert client.get("session").json["cluster"]

            def roles() -> dict[str, str]:
                return {row["address"]: row["role"] for row in client.get("cluster").json["servers"]}

            expected = {f"127.0.0.1:{owner.port}": "owner", f"127.0.0.1:{standby.port}": "standby"}
            eventually(lambda: roles() == expected)
            rows = {row["role"]: row for row in client.get("cluster").json["servers"]}
            assert (rows["owner"]["part"], rows["standby"]["part"]) == ("main", None)
            assert rows["owner"]["since"] <= rows["owner"]["until"]
        eventually(lambda: list(roles().values()) == ["owner"])


def test_the_page_in_a_browser_follows_the_cluster(tmp_path: Path) -> None:
    """A server that joins, or goes, is seen without a click."""
    with launched() as browser, Server(config_of(tmp_path, "a")) as owner:
        eventually(lambda: status_of(owner.http_port) == "ok")
        with window(browser, owner.http_port) as page:
            page.goto("/console/")
            page.get_by_role("link", name="Cluster").click()
            row = page.get_by_role("row")
            expect(row.filter(has_text=f"127.0.0.1:{owner.port}")).to_contain_text("owns the store")
            with Server(config_of(tmp_path, "b")) as standby:
                expect(row.filter(has_text=f"127.0.0.1:{standby.port}")).to_contain_text("stands by")
            expect(row.filter(has_text=f"127.0.0.1:{standby.port}")).to_have_count(0)


def test_the_page_of_plog_servers_fits_every_screen_and_has_labels(tmp_path: Path) -> None:
    """Whoever looks at a cluster from the telephone at night has to see which server is away."""
    cpo = f"sqlite:{tmp_path}/cpo.db"
    with (
        launched() as browser,
        local_cluster(tmp_path, cpo, name="plant-of-the-north", group="first-building") as plog_servers,
        Server(config_of(tmp_path, "a", plogs="cluster:plant-of-the-north")) as owner,
    ):
        eventually(lambda: status_of(owner.http_port) == "ok")
        for settings in ({}, {"viewport": NARROW}, {"color_scheme": "dark"}):
            with window(browser, owner.http_port, **settings) as page:
                page.goto("/console/#/cluster")
                for address in (f"127.0.0.1:{owner.port}", *plog_servers):
                    expect(page.get_by_role("row").filter(has_text=address)).to_be_visible()
                check_fit(page, f"the page of the cluster, {settings}")


def test_a_server_that_stands_by_refuses_the_console_until_it_owns_the_store(tmp_path: Path) -> None:
    """A page there would show nothing, or something old; the page that is open asks again by itself."""
    with Server(config_of(tmp_path, "a")) as owner:
        eventually(lambda: status_of(owner.http_port) == "ok")
        with penstock.connect(owner.address) as store:
            store.create_stream("plant/readings")
        with Server(config_of(tmp_path, "b")) as standby:
            client = Client(standby.http_port)
            for method, path in (
                ("GET", "/console/"),
                ("GET", "/console/api/streams"),
                ("POST", "/console/api/session"),
            ):
                answer = client.ask(method, path)
                assert answer.status == 503, path
                assert answer.headers["Retry-After"]
                assert b"stands by" in answer.body
            owner._parts.close()
            eventually(lambda: client.get("streams").status == 200)
            assert [row["name"] for row in client.get("streams").json["streams"]] == ["plant/readings"]
            assert client.ask("GET", "/console/").status == 200


def test_a_long_download_is_given_its_time_again_with_each_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An event of many gigabytes takes longer than any answer may be silent for; each part of it is on time."""
    size, read = 7 * _DOWNLOAD_CHUNK, EventInputStream.read
    disk = threading.Event()

    def slow_read(self: EventInputStream, count: int = -1) -> bytes:
        disk.wait(0.25)  # it is never set: the disk takes so long
        return read(self, count)

    monkeypatch.setattr(EventInputStream, "read", slow_read)
    with Server(config_of(tmp_path, "a", idle_timeout_s=1.0)) as server:
        eventually(lambda: status_of(server.http_port) == "ok")
        with penstock.connect(server.address) as store:
            store.create_stream("plant/film")
            with store.writer("plant/film") as writer, writer.begin_write_event("cam") as output:
                output.write(bytes(size))
            assert output.pointer is not None
            answer = Client(server.http_port).get("event/data", pointer=output.pointer)
        assert (answer.status, len(answer.body)) == (200, size)
