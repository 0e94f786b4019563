"""``penstock repo bundle check``: check a bundle."""

from penstock.cli._output import JsonOption
from penstock.cli.repo._contents import BundleArgument, report_check

EXAMPLE = "penstock repo bundle check project.bundle"


def check(bundle: BundleArgument, *, as_json: JsonOption = False) -> None:
    """Reconstruct everything that is in a bundle, and compare it with its checksums."""
    from penstock.repo import Bundle

    with Bundle.open(bundle) as opened:
        result = opened.check()
    report_check(bundle, result, as_json=as_json)
