"""What this installation says it needs, read back from its own metadata.

So ``pyproject.toml`` stays the only list of dependencies. Only the grammar used there is understood: a name,
bounds with ``>=`` and ``<``, at most one ``python_version <`` and one ``extra ==``.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import re
import sys
from dataclasses import dataclass

_REQUIREMENT = re.compile(
    r"(?P<name>[\w.-]+)(?P<bounds>[<>=,.\d]*)"
    r"(; (\(?python_version < ['\"](?P<python>[\d.]+)['\"]\)?)?( and )?(extra == ['\"](?P<extra>\w+)['\"])?)?"
)
_DISTRIBUTION = "penstock-stream"
_BOUND = re.compile(r"(>=|<)([\d.]+)")
_MODULES = {"argon2-cffi": "argon2", "backports-zstd": "backports.zstd"}  # others: the name with underscores


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """One package that Penstock needs, always or for one extra."""

    name: str
    bounds: str
    extra: str | None

    def look(self) -> tuple[bool, str]:
        """Import the package; return whether it will do, and its version or what is wrong with it."""
        try:
            version = importlib.metadata.version(self.name)
        except importlib.metadata.PackageNotFoundError:
            return False, "missing"
        if not self.accepts(version):
            return False, f"{version} is not {self.bounds}"
        try:
            importlib.import_module(self.module)
        except ImportError as error:
            return False, f"{version} cannot be imported: {error}"
        return True, version

    @property
    def module(self) -> str:
        """What to import to use it."""
        return _MODULES.get(self.name, self.name.replace("-", "_"))

    def accepts(self, version: str) -> bool:
        """Tell whether a version lies within the bounds."""
        found = _numbers(version)
        return all(
            found >= _numbers(limit) if operator == ">=" else found < _numbers(limit)
            for operator, limit in _BOUND.findall(self.bounds)
        )


def requirements() -> list[Requirement]:
    """Return what the installed Penstock needs under this Python."""
    parsed = (parse_requirement(line) for line in importlib.metadata.requires(_DISTRIBUTION) or [])
    return [requirement for requirement in parsed if requirement is not None]


def extra_with(module: str) -> str | None:
    """Return the extra that installs a module, if one does."""
    return next((need.extra for need in requirements() if need.module == module.partition(".")[0]), None)


def parse_requirement(line: str) -> Requirement | None:
    """Return the requirement of one line of metadata; None if this Python does not need it."""
    match = _REQUIREMENT.fullmatch(line)
    assert match, f"pyproject.toml asks for {line!r}: write it as the other lines there"
    if match["python"] and sys.version_info >= _numbers(match["python"]):
        return None
    return Requirement(name=match["name"], bounds=match["bounds"], extra=match["extra"])


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version))
