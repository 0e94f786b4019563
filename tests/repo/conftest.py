"""Breezy, beside ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.repo.breezy_oracle import Oracle, missing, oracle

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def breezy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Oracle]:
    """One process for all questions of a session: it takes half a second to start."""
    if reason := missing():
        pytest.skip(reason)
    with oracle(tmp_path_factory.mktemp("breezy")) as process:
        yield process
