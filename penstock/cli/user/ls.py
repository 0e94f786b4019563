"""``penstock user ls``: list the users."""

from penstock.cli._output import JsonOption, print_json, print_rows
from penstock.cli._store import STORE_DEFAULT
from penstock.cli.user._users import FolderOption, open_users

EXAMPLE = "penstock user ls"


def ls(*, store: FolderOption = STORE_DEFAULT, as_json: JsonOption = False) -> None:
    """List the users and their permissions."""
    users = list(open_users(store))
    if as_json:
        rows = [[{"permission": grant.permission, "pattern": grant.pattern} for grant in user.grants] for user in users]
        print_json([{"name": user.name, "grants": row} for user, row in zip(users, rows, strict=True)])
    else:
        grants = [",".join(f"{grant.permission} {grant.pattern}" for grant in user.grants) for user in users]
        print_rows(("name", "permissions"), [(user.name, text) for user, text in zip(users, grants, strict=True)])
