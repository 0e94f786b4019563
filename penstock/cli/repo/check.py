"""``penstock repo check``: check a repository."""

from penstock.cli._output import JsonOption
from penstock.cli._store import STORE_DEFAULT, StoreOption
from penstock.cli.repo._contents import ContentsArgument, opened_contents, report_check

EXAMPLE = "penstock repo check code/project"


def check(stream: ContentsArgument, *, store: StoreOption = STORE_DEFAULT, as_json: JsonOption = False) -> None:
    """Reconstruct everything that is in a repository, and compare it with its checksums."""
    with opened_contents(stream, store) as contents:
        result = contents.check()
    report_check(stream, result, as_json=as_json)
