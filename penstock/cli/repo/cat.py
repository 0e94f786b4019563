"""``penstock repo cat``: print a file of a revision."""

import sys

from penstock.cli._store import STORE_DEFAULT, StoreOption
from penstock.cli.repo._contents import ContentsArgument, opened_contents
from penstock.cli.repo._places import PlaceArgument, read_place

EXAMPLE = "penstock repo cat code/project README.md@main"


def cat(stream: ContentsArgument, place: PlaceArgument, *, store: StoreOption = STORE_DEFAULT) -> None:
    """Print a file as it was in a revision, byte by byte."""
    with opened_contents(stream, store) as contents:
        sys.stdout.buffer.write(contents.text(read_place(contents, place)))
