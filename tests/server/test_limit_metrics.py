"""Every limit is visible in ``/metrics``: what it is, how much of it is used, and how often it was reached."""

from __future__ import annotations

import io
import logging
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa
import pytest
from pyarrow import flight

from penstock.client._address import _Identification
from penstock.server import Config, Server
from penstock.server._logs import logging_to
from penstock.server._users import USERS_FILE, Users
from penstock.wire import ByteBudget
from tests.server.apart import figures_of
from tests.server.owned import STREAM, new_folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KINDS: Final = {"max_connections": "clients"}
"""Of other settings, the kind is the name."""
SIZE_MAX: Final = 2 << 20


@pytest.fixture
def limited(tmp_path: Path) -> Iterator[tuple[Server, str]]:
    """A server with small limits, and the token of a user who may do everything."""
    folder = new_folder(tmp_path)
    users = Users.open(folder / USERS_FILE)
    users.add("anna", "secret")
    users.grant("anna", "admin", "*")
    config = Config(
        store=str(folder), port=0, http_port=0, max_message_bytes=SIZE_MAX, max_inflight_bytes=SIZE_MAX, max_log_lines=3
    )
    with logging_to(io.StringIO(), "plain", config.max_log_lines), Server(config) as server:
        yield server, users.token("anna", 3600)


def test_each_limit_has_metrics(limited: tuple[Server, str]) -> None:
    """An operator sees which limit is near, or was reached, without a look at the code."""
    server, token = limited
    found = figures_of(server.http_port, token)
    set_here = {"max_message_bytes": SIZE_MAX, "max_inflight_bytes": SIZE_MAX, "max_log_lines": 3}
    settings = {field.name: field.default for field in msgspec.structs.fields(Config)} | set_here
    del settings["max_user_share"]  # a share of the others
    for setting, value in settings.items():
        if not setting.startswith("max_"):
            continue
        kind = KINDS.get(setting, setting.removeprefix("max_"))
        assert found[f"penstock_limit {kind}"] == value
        assert f"penstock_used {kind}" in found
        assert f"penstock_refused_total {kind}" in found


def test_limits_of_sizes_and_lines_count_what_reached_them(limited: tuple[Server, str]) -> None:
    """A message that is too large, and lines that are left out, would otherwise be noticed by those who sent them."""
    server, token = limited
    options = flight.FlightCallOptions(timeout=60)
    with flight.connect(f"grpc://127.0.0.1:{server.port}", middleware=[_Identification(f"Bearer {token}")]) as client:
        for size, is_taken in ((1 << 20, True), (SIZE_MAX, False)):
            batch = pa.record_batch({"event": [bytes(size)]})
            writer, _ = client.do_put(flight.FlightDescriptor.for_path(*STREAM.split("/")), batch.schema, options)
            writer.write_batch(batch)
            if is_taken:
                writer.close()
            else:
                with pytest.raises(flight.FlightServerError, match="max_message_bytes"):
                    writer.close()
    for _ in range(5):
        logging.getLogger("penstock.server").warning("the same")
    found = figures_of(server.http_port, token)
    assert 1 << 20 <= found["penstock_used message_bytes"] < SIZE_MAX
    assert found["penstock_refused_total message_bytes"] == 1
    assert found["penstock_used log_lines"] == 3
    assert found["penstock_refused_total log_lines"] == 2


def test_budget_counts_who_had_to_wait() -> None:
    """It says whether the limit is what slows clients down."""
    budget = ByteBudget(10)
    assert budget.take(8)
    assert not budget.take(8, wait=False)
    assert (budget.used, budget.refused) == (8, 1)
