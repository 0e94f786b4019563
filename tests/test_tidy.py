"""Rules of the house that no other tool checks."""

from __future__ import annotations

import ast
import importlib
import json
import os
import pkgutil
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

import penstock
from penstock import errors
from tests.sources import ROOT, python_files, tree_of
from tests.stream.harness import EMBEDDED_ONLY

if TYPE_CHECKING:
    from collections.abc import Iterator

EXTRA_MODULES: Final = {
    *("argon2", "cbor2", "cryptography", "deltalake", "duckdb", "grpc", "h11", "obstore", "opentelemetry", "pandas"),
    *(
        "polars",
        "prometheus_client",
        "psycopg",
        "pyiceberg",
        "pyspark",
        "starlette",
        "textual",
        "uvicorn",
        "websockets",
    ),
}
HEAVY_MODULES: Final = {
    *EXTRA_MODULES,
    *(
        "asyncio",
        "concurrent",
        "logging",
        "multiprocessing",
        "numpy",
        "pyarrow",
        "rich",
        "sqlalchemy",
        "sqlite3",
        "ssl",
    ),
    *("socket", "subprocess", "threading", "typer"),
}
LIGHT_PARTS: Final = {"penstock._version", "penstock.errors", "penstock.model"}
REGISTRY_HOST: Final = re.compile(
    r"\b(pypi|pythonhosted|anaconda|conda-forge|npmjs|docker)\.(org|com|io)\b", re.IGNORECASE
)
FILE_LINES_MAX: Final = 450
NAMES_TO_REPLACE: Final = {
    **dict.fromkeys(("one", "some", "what", "who"), "the noun"),
    **dict.fromkeys(("bell", "ring"), "wake_up, notify"),
    **dict.fromkeys(("look", "seat", "seated", "sitter"), "member, membership, sync"),
    **dict.fromkeys(("guest", "stranger"), "unauthenticated client, anonymous client"),
    **dict.fromkeys(("account", "ledger"), "usage, usage table"),
    **dict.fromkeys(("keep", "keeper"), "owner process"),
    **dict.fromkeys(("pass_s", "pass_watermark", "upkeep"), "maintenance, maintenance_interval_s, forward_watermark"),
    "door": "owner socket, auth middleware, connection table",
    "errand": "task",
    "mark": "cut point, digest, position: only a writer's time mark, or a watermark, is a mark",
    "proof": "access probe",
    "room": "byte budget, allocated size, cut budget",
}
"""Names that say too little or are metaphors of ours, and what to use. Words that are right elsewhere, such as the line
of a text or the step of a search, are left to the reader."""
NAMES_ALLOWED: Final = {
    ("server/_writers.py", "mark"),  # of time, as are the next three
    ("stream/catalog/_catalog_state.py", "mark"),
    ("stream/write/_flush.py", "_mark"),
    ("wire/operations/writers.py", "Mark"),
}
CHECKOUT_PATH: Final = re.compile(rf"(?<![\w.-]){re.escape(str(ROOT))}(?![\w.-])")


def files_of_the_repository() -> Iterator[Path]:
    for folder, subfolders, names in os.walk(ROOT):
        hidden = {name for name in subfolders if name.startswith(".") and name != ".ci"}
        subfolders[:] = set(subfolders) - hidden - {"__pycache__", "dist"}
        yield from (Path(folder, name) for name in names)


def test_every_test_has_a_docstring() -> None:
    """The name says what is expected, the docstring why; a test that fails years later needs both."""
    bare = [
        f"{file.relative_to(ROOT)}:{node.lineno} {node.name}"
        for file in python_files("tests")
        for node in ast.walk(tree_of(file))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_") and not ast.get_docstring(node)
    ]
    assert not bare, "\n".join(bare)


def test_no_test_changes_the_clock_of_the_whole_process() -> None:
    """Servers of other tests run in it: their event loops calculated a pause of a day, and the end of a run hung."""
    clock = re.compile(r"""setattr\(["'](\w+\.)*time\.\w+["']|setattr\((\w+\.)*time, ["'](monotonic|sleep)""")
    assert [str(file) for file in python_files("tests") if clock.search(file.read_text())] == []


def test_the_list_of_tests_that_skip_the_wire_is_complete() -> None:
    """A reader sees in one place what is not tested over the wire, and an entry goes with its test."""
    skipping = {
        test.name
        for file in python_files("tests")
        for test in ast.walk(tree_of(file))
        if isinstance(test, ast.FunctionDef)
        for node in ast.walk(test)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "embedded_only"
    }
    assert skipping == EMBEDDED_ONLY.keys()


def test_every_module_has_a_docstring() -> None:
    """A file opens with its subject."""
    bare = [str(file) for file in python_files("penstock") if not ast.get_docstring(tree_of(file))]
    assert not bare, "\n".join(bare)


def test_no_file_is_too_long() -> None:
    """A file has one subject; one of many hundred lines has several, and a reader has to find out which."""
    sizes = {str(file.relative_to(ROOT)): file.read_text().count("\n") for file in python_files("penstock")}
    assert not {name for name, lines in sizes.items() if lines > FILE_LINES_MAX}


def test_names_are_words_of_the_field() -> None:
    """A reader knows Kafka and databases, not our metaphors, and "one" does not say of what."""
    found = [
        f"{file.relative_to(ROOT)}:{line} {name}: use {NAMES_TO_REPLACE[name.strip('_').lower()]}"
        for file in python_files("penstock")
        for name, line in _unclear_names(file.read_text())
        if (str(file.relative_to(ROOT / "penstock")), name) not in NAMES_ALLOWED
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "code",
    [
        "one = 1",
        "for some in ():\n    pass",
        "def f(who): pass",
        "def f(*, what=None): pass",
        "class Store:\n    def _look(self): pass",
        "class Store:\n    room: int",
        "self._keep = 1",
        "[one for one in ()]",
        "lambda one: 1",
        "with open(path) as door: pass",
        "mark = digest(b'')",
    ],
)
def test_an_unclear_name_is_found_wherever_it_is_bound(code: str) -> None:
    """A check that overlooks parameters or attributes would let the names come back there."""
    assert len(list(_unclear_names(code))) == 1


def test_a_mark_of_time_is_a_clear_name() -> None:
    """Writers note time marks, and that is what the word is kept for."""
    assert list(_unclear_names("mark: Watermark = store.watermark(name)")) == []


def _unclear_names(source: str) -> Iterator[tuple[str, int]]:
    """Yield the names in NAMES_TO_REPLACE that a module binds, and the line of each."""
    has_time_marks = re.search("watermark|WriterMark", source, re.IGNORECASE)
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()) | ast.arg(arg=name):
                pass
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                pass
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.ExceptHandler(name=str(name)):
                pass
            case _:
                continue
        word = name.strip("_").lower()
        if word in NAMES_TO_REPLACE and not (word == "mark" and has_time_marks):
            yield name, node.lineno


def test_codestat_prints_the_figures_of_a_package(tmp_path: Path) -> None:
    """The house is compared with its models by these figures, so they have to be the same for every package."""
    package, tests = tmp_path / "package", tmp_path / "tests"
    run = [
        "def double(figure: int) -> int:",
        "    figure += 1",
        *(f"    figure += {n}" for n in range(7)),
        "    return 2",
    ]
    for folder, name, lines in [(package, "a.py", run), (package, "b.py", run), (tests, "test_a.py", run[:5])]:
        folder.mkdir(exist_ok=True)
        folder.joinpath(name).write_text("\n".join(lines) + "\n")
    command = [sys.executable, f"{ROOT}/tools/codestat.py", f"{package}", "--tests", f"{tests}", "--json"]
    figures = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    assert (figures["files"], figures["lines"], figures["file_max"]) == (2, 20, 10)
    assert (figures["functions"], figures["function_median"]) == (2, 10)
    assert (figures["duplicate_percent"], figures["test_ratio"]) == (100, 0.25)


@pytest.mark.parametrize("pattern", [REGISTRY_HOST, CHECKOUT_PATH], ids=["registry", "checkout"])
def test_no_file_names_a_package_registry_or_this_machine(pattern: re.Pattern[str]) -> None:
    """Where packages come from, and where the work is done, differs from one place to the next."""
    found = [
        f"{file.relative_to(ROOT)}: {match[0]}"
        for file in files_of_the_repository()
        if (match := pattern.search(file.read_bytes().decode(errors="replace")))
    ]
    assert not found, "\n".join(found)


def test_no_module_imports_a_private_module_of_another_package() -> None:
    """What a package exports is what others may rely on; the rest of it may change by itself."""
    found = [
        f"{file.relative_to(ROOT)} {name}"
        for file in python_files("penstock")
        for node in ast.walk(tree_of(file))
        for name in _imported(node)
        if _is_private_elsewhere(name, file)
    ]
    assert not found, "\n".join(found)


def _imported(node: ast.AST) -> list[str]:
    """Return what an import names: of ``from x import y``, x.y, which may be a module, too."""
    if isinstance(node, ast.Import):
        return [name.name for name in node.names]
    if isinstance(node, ast.ImportFrom) and node.module:
        return [f"{node.module}.{name.name}" for name in node.names]
    return []


def _is_private_elsewhere(name: str, file: Path) -> bool:
    """Whether a name lies in a private module, of a package that the file is not in."""
    parts = name.split(".")
    private = next((place for place, part in enumerate(parts) if re.match("_[a-z]", part)), None)
    if parts[0] != "penstock" or private is None:
        return False
    folder = ROOT.joinpath(*parts[:private])
    is_module = folder.joinpath(f"{parts[private]}.py").exists() or folder.joinpath(parts[private]).is_dir()
    return is_module and folder not in file.parents


def test_every_public_name_exists() -> None:
    """`from penstock.x import *` and the documentation rely on `__all__`."""
    for module_info in pkgutil.walk_packages(penstock.__path__, "penstock."):
        module = importlib.import_module(module_info.name)
        missing = [name for name in getattr(module, "__all__", []) if not hasattr(module, name)]
        assert not missing, f"{module_info.name}: {missing}"


def test_every_name_that_a_package_exports_is_used_outside_of_it() -> None:
    """An export is a promise; one that no other package asks for only makes the package harder to change."""
    files = [file for folder in ("penstock", "tests", "bench") for file in python_files(folder)]
    imported = {name for file in files for node in ast.walk(tree_of(file)) for name in _imported(node)}
    used = {name for file in files for name in re.findall(r"\w+\.\w+", file.read_text())}
    documented = {"penstock"} | {
        f"penstock.{name}" for name in ("aio", "errors", "events", "repo")
    }  # users import those
    unused = [
        f"{package.name}.{name}"
        for package in pkgutil.walk_packages(penstock.__path__, "penstock.")
        if package.ispkg and package.name not in documented
        for name in getattr(importlib.import_module(package.name), "__all__", [])
        if f"{package.name}.{name}" not in imported and f"{package.name.rpartition('.')[2]}.{name}" not in used
    ]
    assert not unused, "\n".join(unused)


def test_every_name_at_the_top_is_documented() -> None:
    """Users annotate their code with these names, and look up in one place what each of them is."""
    page = (ROOT / "docs" / "streams.md").read_text()
    names = {name for name in penstock.__all__ if name[0].isupper()}
    assert {name for name in names if f"`{name}`" not in page} == {"Store"}, "which has a sentence of its own"


def test_every_error_is_in_the_tree() -> None:
    """Users look up in one docstring what to catch; an error defined elsewhere would not be found there."""
    for module_info in pkgutil.walk_packages(penstock.__path__, "penstock."):
        importlib.import_module(module_info.name)
    tree = (errors.__doc__ or "").partition("::")[2]
    described = re.compile(r"(?:\b[A-Z]\w+(?: \(\w+\))?(?:, )?)+")
    named = {
        name
        for line in tree.splitlines()
        if (found := described.match(line.lstrip(" │├└─")))
        for name in re.findall(r"(?<!\()\b[A-Z]\w+", found[0])
    }
    raised: list[type[Exception]] = [errors.PenstockError, *_subclasses(errors.PenstockError)]
    public = [kind for kind in raised if not kind.__name__.startswith("_")]  # others show as the error that they are
    ours = [kind for kind in public if kind.__module__.startswith("penstock.")]
    assert {kind.__module__ for kind in ours} == {errors.__name__}
    assert named == {kind.__name__ for kind in ours}


def _subclasses(kind: type[Exception]) -> Iterator[type[Exception]]:
    for one in kind.__subclasses__():
        yield one
        yield from _subclasses(one)


def test_one_name_is_one_class() -> None:
    """A reader who looks a class up finds one, and an import that is wrong by accident fails."""
    defined = Counter(
        node.name
        for file in python_files("penstock")
        for node in ast.walk(tree_of(file))
        if isinstance(node, ast.ClassDef)
    )
    assert [name for name, count in defined.items() if count > 1] == []


def test_import_loads_nothing_heavy() -> None:
    """Spark starts many Python workers, and each of them imports us: that takes a twentieth of a second in all.

    What is heavy is listed, and no time is measured, which would depend on the machine and on what else it does.
    """
    loaded = loaded_by("import penstock")
    assert loaded & HEAVY_MODULES == set()
    assert {name for name in loaded if name.startswith("penstock.")} - LIGHT_PARTS == set()


def test_a_store_loads_no_extra() -> None:
    """Who writes events to a folder needs neither a server, nor Spark, nor a terminal; and may not have them."""
    code = "import penstock\nwith penstock.connect('memory:') as store: store.create_stream('a/b')"
    assert loaded_by(code) & (EXTRA_MODULES | {"rich", "typer"}) == set()


def loaded_by(statement: str) -> set[str]:
    """Return the modules that a new process has loaded after statements; packages of others by their first name."""
    code = f"{statement}\nimport sys, json\nprint(json.dumps(sorted(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return {
        ".".join(name.split(".")[:2]) if name.startswith("penstock.") else name.partition(".")[0]
        for name in json.loads(result.stdout)
    }
