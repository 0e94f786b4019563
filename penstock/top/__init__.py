"""The streams of a store at a glance, in a terminal: ``penstock top``.

``_source`` asks the owner of the store for figures, which are those of the web console. ``_table`` and ``_details``
make lines of text of them, for any width, without I/O. ``_app`` shows the lines and asks once a second; it is imported
only where there is a terminal, because it needs the extra ``top``.
"""

import os
import select
import signal
import sys
import threading

from penstock.top._figures import Overview, StreamFigures, StreamRow
from penstock.top._source import Query, Source, source_of
from penstock.top._table import row_cells, table_columns

__all__ = [
    "Overview",
    "Query",
    "Source",
    "StreamFigures",
    "StreamRow",
    "row_cells",
    "run",
    "source_of",
    "table_columns",
]


def run(source: Source, address: str, query: Query) -> int:
    """Show the figures of a source on the terminal, until the user quits, or a signal comes; return the exit code."""
    from penstock.top._app import TopApp  # noqa: PLC0415 - needs the extra

    threading.Thread(target=_end_with_terminal, name="penstock-terminal", daemon=True).start()
    app = TopApp(source, address, query)
    app.run()
    return app.return_code or 0


def _end_with_terminal() -> None:
    """End the process when the terminal is closed: textual would wait for ever until that takes what it has drawn."""
    closed = select.poll()
    closed.register(sys.stdin, 0)  # a hang-up is always reported
    closed.poll()
    os._exit(128 + signal.SIGHUP)
