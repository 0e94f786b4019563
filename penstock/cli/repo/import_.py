"""``penstock repo import``: import a git repository."""

from typing import Annotated

import typer

from penstock.cli._output import JsonOption, count_of, fail, print_json, revision_progress
from penstock.cli._store import STORE_DEFAULT, StoreOption, new_store
from penstock.cli.repo._contents import RepositoryArgument, printed, target_repository

EXAMPLE = "penstock repo import ./project code/project"


def import_(
    git: Annotated[str, typer.Argument(metavar="GIT", help="The folder of the git repository.")],
    stream: RepositoryArgument,
    *,
    force: Annotated[
        bool, typer.Option("--force", help="Also move and remove names whose commits GIT does not have.")
    ] = False,
    store: StoreOption = STORE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Import the branches and tags of a git repository, with all their commits.

    Only commits that are not there yet are read. An import that was interrupted goes on where it was. The stream gets
    the names that GIT has: HEAD, branches and tags. If names would be removed, or moved to commits that do not follow,
    and GIT does not have the commits that they stand for, nothing is imported: it may be the wrong repository.
    """
    from penstock.errors import ForeignNames
    from penstock.model import check_stream_name
    from penstock.repo.git import check_git, import_git

    check_git(git)  # all checks before a store is created
    check_stream_name(stream)
    with (
        new_store(store) as opened,
        target_repository(opened, stream) as repository,
        revision_progress("importing") as on_progress,
    ):
        try:
            result = import_git(git, repository, force=force, on_progress=on_progress)
        except ForeignNames as error:
            fail(str(error).replace("force the import", "use --force"))
    refs = {printed(name): printed(ref.revision) for name, ref in result.refs.items()}
    skipped = [printed(name) for name in result.skipped]
    moved, removed = (
        {printed(name): printed(ref.revision) for name, ref in names.items()}
        for names in (result.moved, result.removed)
    )
    if as_json:
        found = {"stream": stream, "revisions": result.revisions, "refs": refs, "skipped": skipped}
        print_json(found | {"moved": moved, "removed": removed})
        return
    typer.echo(f"{stream}: {count_of(result.revisions, 'new revision')}, {count_of(len(refs), 'name')}")
    for name, revision in moved.items():
        typer.echo(f"{name}: moved from {revision} to {refs[name]}")
    for name, revision in removed.items():
        typer.echo(f"{name}: removed, it was {revision}")
    for name in skipped:
        typer.echo(f"penstock: {name} is no commit and was left out", err=True)
