"""``penstock repo annotate``: say where each line of a file comes from."""

import sys

from penstock.cli._output import JsonOption, print_json
from penstock.cli._store import STORE_DEFAULT, StoreOption
from penstock.cli.repo._contents import ContentsArgument, opened_contents, printed, when
from penstock.cli.repo._places import PlaceArgument, read_place

EXAMPLE = "penstock repo annotate code/project README.md@main"


def annotate(
    stream: ContentsArgument, place: PlaceArgument, *, store: StoreOption = STORE_DEFAULT, as_json: JsonOption = False
) -> None:
    """Print each line of a file, and before it the revision that it comes from, with its author and its time."""
    with opened_contents(stream, store) as contents:
        lines = contents.annotate(read_place(contents, place))
        texts = {revision: contents.revision(revision) for revision, _ in lines}
    for revision, line in lines:
        text = texts[revision]
        author = text.decoded(text.author.name)
        if as_json:
            found = {"revision": printed(revision), "author": author, "time": text.author.time}
            print_json(found | {"line": line.decode(errors="backslashreplace")})
        else:
            heading = "\t".join([printed(revision), " ".join(author.split()), when(text.author)]) + "\t"
            sys.stdout.buffer.write(heading.encode() + line.removesuffix(b"\n") + b"\n")
    sys.stdout.flush()
