"""``penstock repo push``: copy a repository to another store."""

from penstock.cli._output import JsonOption
from penstock.cli._store import STORE_DEFAULT, StoreOption, existing_store, new_store
from penstock.cli.repo._contents import (
    ForceOption,
    NameOption,
    OtherArgument,
    RepositoryArgument,
    TwoStoresCommand,
    opened_repository,
)
from penstock.cli.repo._copies import copied

COMMAND = TwoStoresCommand
EXAMPLE = "penstock repo push code/project ./backup"


def push(
    stream: RepositoryArgument,
    other: OtherArgument,
    *,
    name: NameOption = None,
    force: ForceOption = False,
    store: StoreOption = STORE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Copy what another store lacks of a repository: revisions, branches and tags.

    A copy that was interrupted goes on where it was.
    """
    with existing_store(store) as ours, new_store(other) as theirs:
        source = opened_repository(ours, stream)
        target = opened_repository(theirs, name or stream, create=True)
        copied(source, target, "pushing", force=force, as_json=as_json)
