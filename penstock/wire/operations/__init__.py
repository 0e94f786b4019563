"""The operations of the wire, each described once: arguments, permission, and whether it may be repeated.

A client makes a call as a value of one of these classes, and the server checks what it gets against the same class,
before anything is touched. An operation is an action, unless its description says otherwise; the action's type is its
name, and its body has the arguments in the order of the fields.
"""

from penstock.wire.operations import (
    clusters,
    groups,
    overviews,
    readers,
    repositories,
    sessions,
    snapshots,
    streams,
    transactions,
    writers,
)
from penstock.wire.operations._arguments import FIND_MAX, WATERMARKS_MAX
from penstock.wire.operations._operation import OPERATIONS, SHORT_SIZE, About, Operation, Permission, check_form, parse

__all__ = [
    "FIND_MAX",
    "OPERATIONS",
    "SHORT_SIZE",
    "WATERMARKS_MAX",
    "About",
    "Operation",
    "Permission",
    "check_form",
    "clusters",
    "groups",
    "overviews",
    "parse",
    "readers",
    "repositories",
    "sessions",
    "snapshots",
    "streams",
    "transactions",
    "writers",
]
