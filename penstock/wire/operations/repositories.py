"""Operations about repositories: streams of versioned content."""

from typing import Annotated, Final, Literal

from msgspec import Meta

from penstock.wire.operations._arguments import StreamName
from penstock.wire.operations._operation import Operation, declare

_REVISIONS_MAX: Final = 10_000
Revisions = Annotated[
    list[bytes], Meta(max_length=_REVISIONS_MAX, description=f"a list of at most {_REVISIONS_MAX:,} revisions, bytes")
]


@declare("repository", "read", repeats=True)
class GetRepositoryStream(Operation):
    """Search a repository, and send what was found, as the ticket of a DoGet."""

    stream: StreamName
    search: Literal["everything", "revisions", "ancestry", "between"]
    ids: Revisions
    known: Revisions
    ordering: Literal["unordered", "topological"]
    complete_inventory: bool
