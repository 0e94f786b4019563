"""``penstock repo refs``: list branches and tags."""

from penstock.cli._output import JsonOption, print_json, print_rows
from penstock.cli._store import STORE_DEFAULT, StoreOption
from penstock.cli.repo._contents import ContentsArgument, on_one_line, opened_contents, printed

EXAMPLE = "penstock repo refs code/project"


def refs(stream: ContentsArgument, *, store: StoreOption = STORE_DEFAULT, as_json: JsonOption = False) -> None:
    """List the names of revisions: HEAD, branches (refs/heads/…) and tags (refs/tags/…), each after its revision.

    With --json, an annotated tag has its own id, too.
    """
    with opened_contents(stream, store) as contents:
        found = contents.refs()
    if as_json:
        for name, ref in found.items():
            tag = None if ref.tag is None else printed(ref.tag)
            print_json({"name": printed(name), "revision": printed(ref.revision), "tag": tag})
        return
    rows = ((printed(ref.revision), on_one_line(name)) for name, ref in found.items())
    print_rows(("revision", "name"), rows, unbroken=1)
