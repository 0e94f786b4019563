"""``penstock repo export``: write a stream for git fast-import."""

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli._output import count_of, revision_progress
from penstock.cli._output_file import is_standard_output, output_file
from penstock.cli._store import STORE_DEFAULT, StoreOption
from penstock.cli.repo._contents import ContentsArgument, opened_contents, printed

EXAMPLE = "penstock repo export code/project --out project.fi"


def export(
    stream: ContentsArgument,
    *,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write to this file; an existing one is replaced when it is complete. Default: the standard output.",
            show_default=False,
        ),
    ] = None,
    store: StoreOption = STORE_DEFAULT,
) -> None:
    """Write all branches and tags as a stream for git fast-import.

    Commits get the ids that they had, except where they are signed, which git's stream cannot express. Parents that are
    not in the repository have to be in git, where the stream is imported. For commits with invalid time zones, git
    fast-import needs --date-format=raw-permissive.
    """
    from penstock.repo.git import export_git

    prints = out is None or is_standard_output(out)
    with ExitStack() as stack:
        contents = stack.enter_context(opened_contents(stream, store))
        file = sys.stdout.buffer if out is None else stack.enter_context(output_file(out))
        result = export_git(contents, file, on_progress=stack.enter_context(revision_progress("exporting")))
    if not prints:
        typer.echo(f"{out}: {count_of(result.revisions, 'revision')}, {count_of(result.texts, 'text')}")
    if result.missing:
        missing = (
            f"{count_of(len(result.missing), 'parent')} not in the repository, such as {printed(result.missing[0])}"
        )
        typer.echo(f"penstock: {missing}: import the stream where git has those commits", err=True)
