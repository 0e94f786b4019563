"""``penstock maintain``: what is due is done, though no process stays."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from penstock.embedded import open_store
from penstock.model import BySize, StreamConfig

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Call


def test_maintain_removes_what_retention_no_longer_keeps(call: Call, tmp_path: Path) -> None:
    """A stream that is only written by short commands would otherwise grow for ever."""
    with open_store(tmp_path / "penstock-data") as store:
        store.create_stream("plant/readings", config=StreamConfig(retention=BySize(100_000)))
        with store.writer("plant/readings") as writer:
            for _ in range(40):
                writer.write_event(bytes(10_000)).result()
    [found] = json.loads(call("maintain", "plant", "--json").out)
    assert found["name"] == "plant/readings"
    assert 0 < found["size_bytes"] <= 100_000
