"""A client and a server of different versions: the connection is refused, and both versions are named."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import penstock
from penstock.errors import ServerError
from penstock.wire import PROTOCOL

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("version", [PROTOCOL - 1, PROTOCOL + 1])
def test_another_version_of_the_protocol_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    """Half of the calls would work, and the others do something else than was meant; the owner is not disturbed."""
    with penstock.connect(tmp_path) as owner:
        monkeypatch.setattr("penstock.client._connection.PROTOCOL", version)
        with pytest.raises(ServerError, match=f"speaks version {PROTOCOL} of the protocol, not {version}"):
            penstock.connect(tmp_path)
        monkeypatch.undo()
        owner.create_stream("plant/readings")
        with penstock.connect(tmp_path) as client:
            assert client.stream("plant/readings").name == "plant/readings"
