"""``penstock repo ls``: list the files of a revision."""

from typing import Annotated

import typer

from penstock.cli._output import JsonOption, print_json, print_rows
from penstock.cli._store import STORE_DEFAULT, StoreOption
from penstock.cli.repo._contents import ContentsArgument, on_one_line, opened_contents, printed
from penstock.cli.repo._places import read_revision, short_id_on_terminal

EXAMPLE = "penstock repo ls code/project v1"


def ls(
    stream: ContentsArgument,
    revision: Annotated[
        str, typer.Argument(metavar="[REV]", help="The revision: an id or its beginning, a branch or a tag.")
    ] = "HEAD",
    *,
    store: StoreOption = STORE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    r"""List the files of a revision: mode as in git, the revision that each got its text in, and path.

    Bytes of a path that are not UTF-8, and control characters, are written out, as in caf\xe9.
    """
    with opened_contents(stream, store) as contents:
        inventory = contents.inventory(read_revision(contents, revision))
    if as_json:
        for path, entry in inventory.items():
            names = {"path": printed(path), "mode": entry.git_mode, "kind": entry.kind}
            print_json(names | {"text_revision": printed(entry.revision), "file_id": printed(entry.file_id)})
        return
    rows = (
        (entry.git_mode, short_id_on_terminal(printed(entry.revision)), on_one_line(path))
        for path, entry in inventory.items()
    )
    print_rows(("mode", "revision", "path"), rows, unbroken=2)
