"""``penstock stream seal``: seal a stream."""

from penstock.cli._output import JsonOption
from penstock.cli._store import STORE_DEFAULT, StoreOption, existing_store
from penstock.cli.stream._info import NameArgument, print_change

EXAMPLE = "penstock stream seal plant/readings"


def seal(name: NameArgument, *, store: StoreOption = STORE_DEFAULT, as_json: JsonOption = False) -> None:
    """Seal a stream: it accepts no more events, but can be read, truncated and deleted. This cannot be undone."""
    with existing_store(store) as opened:
        info = opened.seal_stream(name)
    print_change(info, "sealed", as_json=as_json)
