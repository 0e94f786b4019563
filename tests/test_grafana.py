"""The dashboard in a Prometheus that scrapes a server: each expression is one that it understands, and has data."""

from __future__ import annotations

import json
import math
import re
import ssl
import subprocess
from contextlib import closing, contextmanager
from shutil import which
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import pytest

import penstock
from penstock.errors import LimitReached
from penstock.server._users import USERS_FILE, Users
from tests.server.apart import eventually, free_port, server_apart
from tests.sources import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


DEPLOY: Final = ROOT / "deploy"
STREAMS: Final = ("plant/readings", "shop/orders")
USER: Final = "prometheus"  # as in deploy/prometheus.yml
PASSWORD: Final = "correct horse battery staple"
PROMETHEUS: Final = which("prometheus")
EMPTY: Final = {"Trouble with streams"}
"""Panels without data while all is well: no call of a client makes the maintenance of a stream fail."""
UNITS: Final = {"bool_yes_no", "none", "ops", "Bps", "bytes", "s", "percentunit"}
"""Units of Grafana: it shows another name as text behind the figure."""
SCRAPE_S: Final = 0.25
VARIABLES: Final = {"$instance": ".+", "$__rate_interval": "1m"}
LABEL: Final = re.compile(r"{{(\w+)}}")


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DEPLOY / "grafana.json").read_text())
    return found


def test_every_panel_has_a_title_a_unit_and_the_chosen_source() -> None:
    """Without a unit 1,000,000,000 bytes are "1 Bil", and another source than the chosen one is that of nobody."""
    variables = {variable["name"]: variable for variable in dashboard()["templating"]["list"]}
    assert variables["datasource"]["query"] == "prometheus"
    assert variables["instance"]["query"] == "label_values(penstock_healthy, instance)"
    assert variables["instance"]["datasource"]["uid"] == "${datasource}"
    panels = dashboard()["panels"]
    assert len({panel["title"] for panel in panels}) == len(panels)
    for panel in panels:
        assert panel["title"].strip()
        assert panel["type"] in {"stat", "timeseries"}
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"]) > 0
        assert all(target["expr"] and target["legendFormat"] for target in panel["targets"])


class Prometheus(NamedTuple):
    """A Prometheus that runs, and what it answers."""

    port: int

    def get(self, path: str, **query: str) -> Any:  # noqa: ANN401 - whatever it answers
        with urlopen(f"http://127.0.0.1:{self.port}/{path}?{urlencode(query)}", timeout=30) as answer:
            return json.load(answer)["data"]

    def is_up(self) -> bool:
        """Whether it scrapes the server."""
        try:
            targets = self.get("api/v1/targets")["activeTargets"]
        except URLError:
            return False
        return [target["health"] for target in targets] == ["up"]

    def has_data(self, target: dict[str, Any]) -> bool:
        """Whether the expression of a panel has values now, with the labels that its legend names."""
        expression, labels = target["expr"], LABEL.findall(target["legendFormat"])
        for name, value in VARIABLES.items():
            expression = expression.replace(name, value)
        found = self.get("api/v1/query", query=expression)["result"]
        values = [series["value"][1] for series in found if all(label in series["metric"] for label in labels)]
        return len(values) == len(found) > 0 and not any(math.isnan(float(value)) for value in values)


@contextmanager
def scraping(folder: Path, http_port: int) -> Iterator[Prometheus]:
    """Run Prometheus with the configuration of deploy/, whose files and server are those of the test."""
    (folder / "password").write_text(PASSWORD)
    text = (DEPLOY / "prometheus.yml").read_text()
    for there, here in {
        "/etc/prometheus/penstock.crt": str(folder / "store" / "server.crt"),
        "/etc/prometheus/penstock.password": str(folder / "password"),
        "penstock.example:7368": f"127.0.0.1:{http_port}",
    }.items():
        assert there in text
        text = text.replace(there, here)
    milliseconds = round(SCRAPE_S * 1000)
    (folder / "prometheus.yml").write_text(
        f"global: {{scrape_interval: {milliseconds}ms, scrape_timeout: {milliseconds}ms}}\n{text}"
    )
    prometheus = Prometheus(free_port())
    command = [
        str(PROMETHEUS),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{prometheus.port}",
        "--log.level=warn",
    ]
    with (folder / "log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            eventually(prometheus.is_up)
            yield prometheus
        finally:
            process.terminate()


class Busy:
    """A store on a server with users, in which everything happens that a panel shows."""

    def __init__(self, folder: Path, port: int, http_port: int) -> None:
        self._certificate = folder / "server.crt"
        self._futoin = f"https://127.0.0.1:{http_port}/futoin/shop/orders"
        self._store = penstock.connect(
            f"penstock://127.0.0.1:{port}", user=USER, password=PASSWORD, tls_ca=self._certificate
        )

    def fill(self) -> None:
        """Make reader groups, a transaction, and a FutoIn consumer."""
        for name in STREAMS:
            self._store.create_stream(name, segments=1)
            self._store.create_reader_group(f"readers-of-{name.partition('/')[2]}", [name])
        self._store.transactional_writer(STREAMS[0], "etl").begin(lease=600)
        self._call("futoin.evt.poll:1.1:registerConsumer", {"component": "reports"})

    def work(self) -> None:
        """Write and read a little, and be refused: a rate needs something that changes."""
        with self._store.writer(STREAMS[0], writer_id="plant-1") as writer:
            writer.write_event(b"event").result(60)
            writer.note_time(1_000)
        self._call("futoin.evt.gen:1.1:addEvent", {"type": "ORDER_PAID", "data": {"order": 17}})
        with pytest.raises(LimitReached):
            self._store.create_reader_group("one-too-many", [STREAMS[0]])

    def _call(self, function: str, parameters: dict[str, Any]) -> None:
        call = {"f": function, "p": parameters, "rid": "C1", "sec": f"{USER}:{PASSWORD}"}
        request = Request(self._futoin, json.dumps(call).encode())
        context = ssl.create_default_context(cafile=str(self._certificate))
        with urlopen(request, timeout=30, context=context) as answer:
            assert "r" in json.load(answer)

    def close(self) -> None:
        """Disconnect."""
        self._store.close()


def test_every_expression_of_the_dashboard_has_data(tmp_path: Path) -> None:
    """A panel that is empty, or an error, is found by the first who needs it: on the day when something is wrong."""
    if PROMETHEUS is None:
        pytest.skip("there is no prometheus on this machine")
    folder, http_port = tmp_path / "store", free_port()
    users = Users.open(folder / USERS_FILE)
    users.add(USER, PASSWORD)
    users.grant(USER, "admin", "*")
    targets = {panel["title"]: panel["targets"] for panel in dashboard()["panels"]}
    with (
        server_apart(folder, http_port=http_port, tls=True, max_groups=4) as (port, _),  # two of a user
        scraping(tmp_path, http_port) as prometheus,
        closing(Busy(folder, port, http_port)) as busy,
    ):
        busy.fill()
        missing: set[str] = set()

        def have_data() -> bool:
            busy.work()
            missing.clear()
            missing.update(
                f"{title}: {target['expr']}"
                for title, of_panel in targets.items()
                for target in of_panel
                if not prometheus.has_data(target) and title not in EMPTY
            )
            return not missing

        try:
            eventually(have_data)
        except AssertionError:
            pytest.fail(f"no data: {sorted(missing)}")
        servers = prometheus.get("api/v1/label/instance/values", **{"match[]": "penstock_healthy"})
        assert servers == [f"127.0.0.1:{http_port}"]
