"""The packages that Penstock requires, read from its own metadata: ``pyproject.toml`` stays the only list."""

from __future__ import annotations

import importlib
import importlib.metadata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from packaging.requirements import Requirement as Line

if TYPE_CHECKING:
    from collections.abc import Iterable

    from packaging.specifiers import SpecifierSet

_DISTRIBUTION: Final = "penstock-stream"
_MODULES: Final = {  # others: the name with underscores
    "argon2-cffi": "argon2",
    "opentelemetry-api": "opentelemetry.trace",
    "opentelemetry-sdk": "opentelemetry.sdk",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """One package that Penstock requires, always or for one extra."""

    name: str
    bounds: SpecifierSet
    extra: str | None

    def check(self) -> tuple[bool, str]:
        """Import the package; return whether it is usable, and its version or the problem."""
        try:
            version = importlib.metadata.version(self.name)
        except importlib.metadata.PackageNotFoundError:
            return False, "missing"
        if not self.bounds.contains(version, prereleases=True):
            return False, f"{version} is not {self.bounds}"
        try:
            importlib.import_module(self.module)
        except ImportError as error:
            return False, f"{version} cannot be imported: {error}"
        return True, version

    @property
    def module(self) -> str:
        """The name of its module."""
        return _MODULES.get(self.name, self.name.replace("-", "_"))


def requirements() -> list[Requirement]:
    """Return the requirements of the installed Penstock under this Python."""
    extras = importlib.metadata.metadata(_DISTRIBUTION).get_all("Provides-Extra") or []
    return parse_requirements(importlib.metadata.requires(_DISTRIBUTION) or [], extras)


def extra_with(module: str) -> str | None:
    """Return the extra that installs a module, or None; one that has the packages of another is not named."""
    wanted = module.partition(".")[0]
    extras = [need.extra for need in requirements() if need.module.partition(".")[0] == wanted]
    return min(extras, key=lambda extra: extra in {"bench", "console", "examples"}, default=None)


def parse_requirements(lines: Iterable[str], extras: Iterable[str]) -> list[Requirement]:
    """Return the requirements in lines of metadata, without those for other Python versions."""
    found = []
    for line in map(Line, lines):
        wanted = (extra for extra in ("", *extras) if line.marker is None or line.marker.evaluate({"extra": extra}))
        extra = next(wanted, None)  # the empty string stands for no extra
        if extra is not None:
            found.append(Requirement(name=line.name, bounds=line.specifier, extra=extra or None))
    return found
