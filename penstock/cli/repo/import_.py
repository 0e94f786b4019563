"""``penstock repo import``: import a git repository."""

from typing import Annotated

import typer

from penstock.cli._output import JsonOption, count_of, print_json, revision_progress
from penstock.cli._store import STORE_DEFAULT, StoreOption, new_store
from penstock.cli.repo._contents import RepositoryArgument, opened_repository, printed

EXAMPLE = "penstock repo import ./project code/project"


def import_(
    git: Annotated[str, typer.Argument(metavar="GIT", help="The folder of the git repository.")],
    stream: RepositoryArgument,
    *,
    store: StoreOption = STORE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Import the branches and tags of a git repository, with all their commits.

    Only commits that are not there yet are read. An import that was interrupted goes on where it was.
    """
    from penstock.repo.git import check_git, import_git

    check_git(git)
    with new_store(store) as opened, revision_progress("importing") as on_progress:
        result = import_git(git, opened_repository(opened, stream, create=True), on_progress=on_progress)
    refs = {printed(name): printed(ref.revision) for name, ref in result.refs.items()}
    skipped = [printed(name) for name in result.skipped]
    if as_json:
        print_json({"stream": stream, "revisions": result.revisions, "refs": refs, "skipped": skipped})
        return
    typer.echo(f"{stream}: {count_of(result.revisions, 'new revision')}, {count_of(len(refs), 'name')}")
    for name in skipped:
        typer.echo(f"penstock: {name} is no commit and was left out", err=True)
