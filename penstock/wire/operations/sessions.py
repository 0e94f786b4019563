"""Operations of a client's session."""

from penstock.wire.operations._arguments import Name, Number
from penstock.wire.operations._operation import Operation, declare


@declare("session", "read", "unchecked", repeats=True)
class BeginSession(Operation):
    """Open a channel, as the descriptor of a DoExchange; ``before`` is the session that it replaces."""

    version: Number
    before: Name | None


@declare("end", "read", "unchecked", repeats=True)
class End(Operation):
    """End the session."""


@declare("here", "read", "unchecked", repeats=True)
class Here(Operation):
    """Show that the client is alive."""
