"""The files of deploy/: their commands exist, and the dashboard asks for metrics that a server has."""

from __future__ import annotations

import base64
import configparser
import json
import re
import shlex
import shutil
import subprocess
import sys
from http.client import HTTPConnection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from penstock.cli import main
from penstock.embedded import open_store
from penstock.server import Config, Server, load_config
from penstock.server._users import USERS_FILE, Users
from tests.sources import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

DEPLOY: Final = ROOT / "deploy"
METRIC: Final = re.compile(r"\b(?:penstock|process|python)_\w+")


@pytest.fixture
def metrics(tmp_path: Path) -> Iterator[str]:
    """What a server with a user, a stream and a reader group serves."""
    with open_store(tmp_path / "store") as store:
        store.create_stream("plant/readings")
        store.create_reader_group("g", ["plant/readings"])
    users = Users.open(tmp_path / "store" / USERS_FILE)
    users.add("prometheus", "secret")
    users.grant("prometheus", "read", "*")
    with Server(Config(store=str(tmp_path / "store"), port=0, http_port=0)) as server:
        connection = HTTPConnection("127.0.0.1", server.http_port, timeout=60)
        basic = base64.b64encode(b"prometheus:secret").decode()
        connection.request("GET", "/metrics", headers={"authorization": f"Basic {basic}"})
        yield connection.getresponse().read().decode()
        connection.close()


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DEPLOY / "grafana.json").read_text())
    return found


def test_every_metric_of_the_dashboard_is_served(metrics: str) -> None:
    """A panel without data looks like a server that is idle."""
    suffixes = {"counter": "_total", "histogram": "_bucket"}
    served = {family.name + suffixes.get(family.type, "") for family in text_string_to_metric_families(metrics)}
    asked = {
        metric
        for panel in dashboard()["panels"]
        for target in panel["targets"]
        for metric in METRIC.findall(target["expr"])
    }
    assert len(asked) > 20
    assert asked - served == set()


def test_panels_of_the_dashboard_do_not_overlap_and_name_the_chosen_source() -> None:
    """Grafana moves a panel that lies on another one, and an unknown source shows an error in each panel."""
    cells: set[tuple[int, int]] = set()
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        place = panel["gridPos"]
        columns, rows = range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"])
        own = {(column, row) for column in columns for row in rows}
        assert max(columns) < 24
        assert not own & cells, panel["title"]
        cells |= own
        assert {target["datasource"]["uid"] for target in panel["targets"]} == {"${datasource}"}
        assert all('{instance=~"$instance"}' in target["expr"] for target in panel["targets"])


def test_prometheus_asks_the_port_and_the_path_of_the_metrics() -> None:
    """A target that is wrong is found only when the metrics are missed."""
    (job,) = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())["scrape_configs"]
    assert job["metrics_path"] == "/metrics"
    assert [target.rpartition(":")[2] for target in job["static_configs"][0]["targets"]] == [str(Config().http_port)]


def unit() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read(DEPLOY / "penstock.service")
    return parser


def instructions() -> dict[str, list[str]]:
    """Return the instructions of the container file, by their names."""
    found: dict[str, list[str]] = {}
    text = (DEPLOY / "Containerfile").read_text().replace("\\\n", " ")
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, _, rest = line.partition(" ")
            found.setdefault(name, []).append(rest)
    return found


def parsed(arguments: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """Run a command line up to where the server would start, and return its settings."""
    settings: dict[str, object] = {}

    def record(flags: dict[str, object], **_: object) -> Config:
        settings.update({name: value for name, value in flags.items() if value is not None})
        return load_config(flags, environ={})

    monkeypatch.setattr("penstock.server.load_config", record)
    monkeypatch.setattr("penstock.server.run", lambda _: None)
    monkeypatch.setattr(sys, "argv", list(arguments))
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code in (None, 0)
    return settings


def test_the_unit_starts_a_server_in_its_own_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a wrong option, or a folder that it may not write to, it restarts forever."""
    service = unit()["Service"]
    command = shlex.split(service["ExecStart"])
    assert Path(command[0]).name == "penstock"
    settings = parsed(["penstock", *command[1:]], monkeypatch)
    assert str(settings["store"]).startswith(f"/var/lib/{service['StateDirectory']}/")
    assert service["ProtectSystem"] == "strict", "so StateDirectory is what it may write to"


def test_the_commands_that_install_the_unit_agree_with_it() -> None:
    """They need root, so no test runs them; a user or a path with another name would be found by the first user."""
    text = (ROOT / "docs" / "interop.md").read_text()
    (block,) = re.findall(r"```text\n(# useradd .*?)```", text, re.DOTALL)
    useradd, venv, install, copy, *rest = (shlex.split(line.removeprefix("# ")) for line in block.splitlines())
    service = unit()["Service"]
    program = Path(shlex.split(service["ExecStart"])[0])
    assert useradd[-1] == service["User"] == service["Group"]
    assert useradd[useradd.index("--home-dir") + 1] == service["WorkingDirectory"]
    assert [venv[-1], install[0]] == [str(program.parents[1]), str(program.with_name("pip"))]
    assert (ROOT / copy[1]).samefile(DEPLOY / "penstock.service")
    assert rest == [["systemctl", "daemon-reload"], ["systemctl", "enable", "--now", Path(copy[1]).stem]]


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="there is no systemd-analyze")
def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    """A setting that systemd does not know is ignored, with a line in a log that nobody reads."""
    text = (DEPLOY / "penstock.service").read_text().replace("/opt/penstock/bin/penstock", "/bin/true")
    (tmp_path / "penstock.service").write_text(text)
    command = ["systemd-analyze", "verify", "--man=no", str(tmp_path / "penstock.service")]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert not [line for line in result.stderr.splitlines() if "penstock.service" in line], result.stderr


def test_the_container_serves_on_the_ports_that_it_exposes(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no container engine where the tests run, so what can be checked without one is checked."""
    found = instructions()
    assert set(found) <= {
        "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "RUN", "STOPSIGNAL", "USER", "VOLUME", "WORKDIR",
    }  # fmt: skip
    command = json.loads(found["ENTRYPOINT"][0]) + json.loads(found["CMD"][0])
    settings = parsed(command, monkeypatch)
    assert str(settings["store"]).startswith(f"{found['VOLUME'][0]}/")
    assert settings["host"] == "0.0.0.0", "a port of the container on loopback is reached by nobody"
    defaults = Config()
    assert found["EXPOSE"][0].split() == [str(defaults.port), str(defaults.http_port)]
    (extras,) = re.findall(r'"/source\[(.*)\]"', found["RUN"][0])
    declared = (ROOT / "pyproject.toml").read_text()
    assert all(re.search(rf"^{extra} = ", declared, re.MULTILINE) for extra in extras.split(","))
    for run in found["RUN"]:
        assert subprocess.run(["bash", "-n", "-c", run], check=False).returncode == 0


def copied_files() -> set[str]:
    """Return which files of this folder the build copies: names at the root, less what is ignored everywhere."""
    lines = (DEPLOY / "Containerfile.dockerignore").read_text().splitlines()
    patterns = [line for line in lines if line and not line.startswith("#")]
    assert patterns[0] == "*", "what is not named is not copied: .git, .venv, stores, passwords"
    named = [pattern[1:] for pattern in patterns if pattern.startswith("!")]
    ignored = [pattern.removeprefix("**/") for pattern in patterns[1:] if not pattern.startswith("!")]
    found = [file for name in named for file in ((ROOT / name).rglob("*") if (ROOT / name).is_dir() else [ROOT / name])]
    places = [file.relative_to(ROOT) for file in found if file.is_file()]
    return {str(place) for place in places if not set(place.parts) & set(ignored)}


def test_the_image_is_built_from_the_package_alone() -> None:
    """A clone has gigabytes of environments beside it, and the history of the repository; an image has neither."""
    copied = copied_files()
    tops = {place.partition("/")[0] for place in copied}
    assert tops == {"LICENSE", "README.md", "constraints.txt", "penstock", "pyproject.toml"}
    assert not [place for place in copied if "__pycache__" in place]
    tracked = subprocess.run(
        ["git", "ls-files", "penstock"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    assert set(tracked) <= copied | {place for place in tracked if not (ROOT / place).exists()}
    assert "COPY . /source" in (DEPLOY / "Containerfile").read_text()
    sources = re.findall(r"/source/([\w.]+)", (DEPLOY / "Containerfile").read_text())
    assert set(sources) <= copied


def test_what_the_build_copies_makes_the_package(tmp_path: Path) -> None:
    """A file that the build needs and does not get would be found when the image is built, by the first user."""
    hatchling = pytest.importorskip("hatchling.build", reason="there is no hatchling")
    assert hatchling
    for place in copied_files():
        (tmp_path / "source" / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / place, tmp_path / "source" / place)
    build = f"from hatchling.build import build_wheel; build_wheel({str(tmp_path)!r})"
    made = subprocess.run(
        [sys.executable, "-c", build], cwd=tmp_path / "source", capture_output=True, text=True, check=False, timeout=60
    )
    assert made.returncode == 0, made.stderr
    assert len(list(tmp_path.glob("penstock_stream-*.whl"))) == 1
