"""``penstock repo bundle open``: show what a bundle has."""

import typer

from penstock.cli._output import JsonOption, count_of, print_json
from penstock.cli.repo._contents import BundleArgument, printed

EXAMPLE = "penstock repo bundle open project.bundle"


def open(bundle: BundleArgument, *, as_json: JsonOption = False) -> None:  # noqa: A001 - the name of the command
    """Show what a bundle has: its revisions, branches and tags, and the items that it builds on.

    The commands log, cat, annotate and export read bundles, too.
    """
    from penstock.repo import Bundle, key_name

    with Bundle.open(bundle) as opened:
        revisions = sum(1 for _ in opened.revisions())
        refs = {printed(name): printed(ref.revision) for name, ref in opened.refs().items()}
        heads = [printed(revision) for revision in opened.heads()]
        missing = [key_name(key) for key in opened.missing]
    if as_json:
        found = {"bundle": bundle, "revisions": revisions, "heads": heads, "refs": refs, "missing": missing}
        print_json(found)
        return
    typer.echo(f"{bundle}: {count_of(revisions, 'revision')}")
    lines = [f"{revision}\t{name}" for name, revision in refs.items()] or heads
    for line in [*lines, *(f"builds on {key}" for key in missing)]:
        typer.echo(line)
