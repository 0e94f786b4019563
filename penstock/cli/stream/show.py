"""``penstock stream show``: show one stream."""

import time
from typing import TYPE_CHECKING

from penstock.cli._output import JsonOption, duration, moment, print_json
from penstock.cli._store import STORE_DEFAULT, StoreOption, existing_store
from penstock.cli.stream._info import NameArgument, as_dict, print_stream

if TYPE_CHECKING:
    from penstock.model import Watermark

EXAMPLE = "penstock stream show plant/readings"


def show(name: NameArgument, *, store: StoreOption = STORE_DEFAULT, as_json: JsonOption = False) -> None:
    """Show one stream: its state, size, configuration, head, tail, watermark, segments and consumers."""
    with existing_store(store) as opened:
        opened.maintain()  # to include times that were noted by a process that has ended
        info, mark, consumers = opened.stream(name), opened.watermark(name), opened.consumers(name)
    if as_json:
        known = {consumer: str(cut) for consumer, cut in consumers.items()}
        print_json(as_dict(info) | {"watermark": None if mark is None else _as_dict(mark), "consumers": known})
    else:
        print_stream(info, "none" if mark is None else f"{moment(mark.lower)}, {duration(_age(mark))} ago", consumers)


def _as_dict(mark: "Watermark") -> dict[str, object]:
    return {"lower": mark.lower, "upper": mark.upper, "cut": str(mark.cut), "age_seconds": _age(mark)}


def _age(mark: "Watermark") -> float:
    """Return the age of the watermark's lower time, in seconds."""
    return round(max(time.time() - mark.lower / 1000, 0.0), 3)
