"""The checks of ``penstock doctor``.

Each checks one thing and reports what it found. ``fail`` means that Penstock does not work here; ``warn`` that a
part of it, or a large amount of data, does not.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from penstock.cli._check import Check
from penstock.cli._requirements import Requirement, requirements
from penstock.cli._server_checks import check_server
from penstock.errors import PenstockError
from penstock.ports import OsDisk, write_all

if TYPE_CHECKING:
    from collections.abc import Sequence

_PYTHON_MIN: Final = (3, 11)
_JAVA_MIN: Final = 17
_EXTRAS: Final = {  # what each is for; the other extras are for those who work on Penstock
    "spark": "read and write streams in Spark",
    "delta": "archive streams as Delta tables",
    "iceberg": "archive streams as Iceberg tables",
    "server": "run a server with its web console",
    "objects": "store plogs in S3 or Azure",
    "postgresql": "share a store between servers",
    "events": "be a client of FutoIn events, and relay an outbox",
    "repo": "store repositories, and import them from git",
    "top": "watch streams in a terminal with penstock top",
    "tracing": "follow traces of OpenTelemetry through events",
    "interop": "run the examples of docs/interop.md",
    "examples": "run the web service in examples",
    "docs": "make a site of the documentation",
}
_FREE_BYTES_MIN: Final = 64 << 20
_FREE_BYTES_WARN: Final = 1 << 30
_DESCRIPTORS_WARN: Final = 1024


def check_machine(folder: Path) -> list[Check]:
    """Run every check, with ``folder`` as the folder of the data."""
    needed = requirements()
    return [
        _check_python(),
        *(_check_package(need) for need in needed if need.extra is None),
        *(
            _check_extra(extra, purpose, [need for need in needed if need.extra == extra])
            for extra, purpose in _EXTRAS.items()
        ),
        _check_java(),
        _check_free_space(folder),
        _check_durable_write(folder),
        _check_descriptors(),
        *check_server(),
    ]


def _check_python() -> Check:
    found = ".".join(str(number) for number in sys.version_info[:3])
    if sys.version_info < _PYTHON_MIN:
        return Check(name="Python", status="fail", found=found, fix="install Python 3.11 or newer")
    return Check(name="Python", status="ok", found=found)


def _check_package(need: Requirement) -> Check:
    usable, found = need.check()
    if not usable:
        return Check(name=need.name, status="fail", found=found, fix=f"pip install '{need.name}{need.bounds}'")
    return Check(name=need.name, status="ok", found=found)


def _check_extra(extra: str, purpose: str, needed: Sequence[Requirement]) -> Check:
    results = {need.name: need.check() for need in needed}
    missing = [f"{name} {found}" for name, (usable, found) in results.items() if not usable]
    if not needed:
        missing = ["this installation is older than the extra"]
    if missing:
        fix = f"to {purpose}: in a clone of Penstock, run pip install '.[{extra}]'"
        return Check(name=f"extra {extra}", status="warn", found=", ".join(missing), fix=fix)
    packages = ", ".join(f"{name} {found}" for name, (_, found) in results.items())
    return Check(name=f"extra {extra}", status="ok", found=f"{packages} (to {purpose})")


def _check_java() -> Check:
    """Check the Java that Spark would run: JAVA_HOME before PATH."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else "java"
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=True, timeout=30).stderr
    except (OSError, subprocess.SubprocessError):
        answer = ""
    version = re.search(r'version "((\d+)[^"]*)"', answer)
    if version is None or int(version[2]) < _JAVA_MIN:
        fix = f"to use Spark: install Java {_JAVA_MIN} or newer, or set JAVA_HOME to it"
        return Check(name="Java", status="warn", found=version[1] if version else "missing", fix=fix)
    return Check(name="Java", status="ok", found=version[1])


def _check_free_space(folder: Path) -> Check:
    free = shutil.disk_usage(folder).free
    found = f"{free / (1 << 30):.1f} GiB in {folder.resolve()}"
    if free >= _FREE_BYTES_WARN:
        return Check(name="free space", status="ok", found=found)
    status: Final = "warn" if free >= _FREE_BYTES_MIN else "fail"
    return Check(name="free space", status=status, found=found, fix="free some space or choose another --store")


def _check_durable_write(folder: Path) -> Check:
    """Do what the store does, in a temporary folder: lock, create, reserve, write, sync."""
    try:
        with TemporaryDirectory(prefix=".penstock-doctor-", dir=folder) as scratch:
            milliseconds = 1000 * _durable_write_seconds(scratch)
    except (OSError, PenstockError) as error:
        fix = "choose a --store on a local disk that you may write to"
        return Check(name="durable write", status="fail", found=str(error), fix=fix)
    return Check(name="durable write", status="ok", found=f"4 KiB in {milliseconds:.1f} ms")


def _durable_write_seconds(folder: str) -> float:
    with closing(OsDisk(folder)) as disk:
        disk.lock()
        with closing(disk.create("probe")) as file:
            file.reserve(1 << 20)
            disk.sync()
            start = time.perf_counter()
            write_all(file, [bytes(4096)], 0)
            file.datasync()
            return time.perf_counter() - start


def _check_descriptors() -> Check:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= soft < _DESCRIPTORS_WARN:
        return Check(
            name="open files", status="warn", found=f"at most {soft}", fix=f"ulimit -n {_DESCRIPTORS_WARN * 64}"
        )
    return Check(
        name="open files", status="ok", found="no limit" if soft == resource.RLIM_INFINITY else f"at most {soft}"
    )
