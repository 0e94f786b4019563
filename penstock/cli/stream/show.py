"""``penstock stream show``: tell all about one stream."""

from penstock.cli._output import JsonOption, print_json
from penstock.cli._store import STORE_DEFAULT, StoreOption, existing_store
from penstock.cli.stream._info import NameArgument, as_dict, print_stream

EXAMPLE = "penstock stream show plant/readings"


def show(name: NameArgument, *, store: StoreOption = STORE_DEFAULT, as_json: JsonOption = False) -> None:
    """Tell all about one stream: its state, size, configuration, head, tail and segments."""
    with existing_store(store) as opened:
        info = opened.stream(name)
    if as_json:
        print_json(as_dict(info))
    else:
        print_stream(info)
