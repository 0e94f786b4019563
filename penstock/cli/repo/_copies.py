"""What push and pull share: the copy, its progress bar and its result."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from penstock.cli._output import count_of, fail, print_json, revision_progress
from penstock.cli.repo._contents import printed

if TYPE_CHECKING:
    from penstock.repo import Repository, RepositoryContents

__all__ = ["copied"]


def copied(source: RepositoryContents, target: Repository, title: str, *, force: bool, as_json: bool) -> None:
    """Copy what the target lacks, and print how much that was."""
    from penstock.errors import RefsDiverged
    from penstock.repo import copy_revisions

    try:
        with revision_progress(title) as on_progress:
            result = copy_revisions(source, target, force=force, on_progress=on_progress)
    except RefsDiverged as error:
        fail(str(error).replace("force the copy", "use --force"))
    names = [printed(name) for name in result.names]
    if as_json:
        print_json({"stream": target.stream, "revisions": result.revisions, "items": result.items, "names": names})
    else:
        counts = count_of(result.revisions, "new revision"), count_of(result.items, "item")
        typer.echo(f"{target.stream}: {', '.join(counts)}, {count_of(len(names), 'changed name')}")
