"""The result of a check of ``penstock doctor``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Check"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One line of the report; ``fix`` is empty if there is nothing to do."""

    name: str
    status: Literal["ok", "warn", "fail"]
    found: str
    fix: str = ""
