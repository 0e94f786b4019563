"""``penstock group ls``: list the reader groups."""

from penstock.cli._output import JsonOption, print_json, print_rows
from penstock.cli._store import STORE_DEFAULT, StoreOption, existing_store

EXAMPLE = "penstock group ls"


def ls(*, store: StoreOption = STORE_DEFAULT, as_json: JsonOption = False) -> None:
    """List the reader groups: name, streams, readers, checkpoints."""
    with existing_store(store) as opened:
        groups = [opened.reader_group(name) for name in opened.reader_groups()]
        found = [(group.name, list(group.streams), group.readers(), list(group.checkpoints)) for group in groups]
    columns = ("name", "streams", "readers", "checkpoints")
    if as_json:
        print_json([dict(zip(columns, row, strict=True)) for row in found])
    else:
        print_rows(columns, [(name, *map(",".join, lists)) for name, *lists in found])
