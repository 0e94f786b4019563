"""``penstock repo push``: copy a repository to another store."""

from penstock.cli._output import JsonOption, fail
from penstock.cli._store import STORE_DEFAULT, StoreOption, existing_store, new_store
from penstock.cli.repo._contents import (
    ForceOption,
    NameOption,
    OtherArgument,
    RepositoryArgument,
    TwoStoresCommand,
    opened_repository,
    target_repository,
)
from penstock.cli.repo._copies import copied
from penstock.errors import NoSuchStream

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
    from penstock.model import check_stream_name

    check_stream_name(name or stream)  # all checks before a store is created
    with existing_store(store) as ours:
        try:
            source = opened_repository(ours, stream)
        except NoSuchStream:
            fail(f"no stream {stream!r} in {store}: name the repository first, then the store to push to")
        with new_store(other) as theirs, target_repository(theirs, name or stream) as target:
            copied(source, target, "pushing", force=force, as_json=as_json)
