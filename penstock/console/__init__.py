"""The web console: pages that show and change streams, served by the HTTP port at ``/console``.

:class:`Console` has the routes. The pages are static: one HTML file, one style sheet and some ES modules in the folder
``static``. They ask the JSON API below ``/console/api``. Every call is checked by itself, with the grants that its user
has at that moment. A session is a token of the user, in a cookie. Between two calls the server keeps only what pages
draw of the last minutes: samples of rates, and of the marks of writers.

``penstock top`` shows the same figures in a terminal: :class:`Overviews` has the rows of its table, and
:func:`stream_figures` the details of a stream. They need no HTTP server, so a name is imported at first use.

What the console needs of the store and of the server is in ``_ports``.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from penstock.console._app import Console
    from penstock.console._guard import has_own_host, has_own_origin
    from penstock.console._mark_history import SAMPLE_EVERY_S
    from penstock.console._overview import Overviews, overviews_of, stream_figures
    from penstock.console._ports import ClusterRow, Figures, SignedIn

__all__ = [
    "SAMPLE_EVERY_S",
    "ClusterRow",
    "Console",
    "Figures",
    "Overviews",
    "SignedIn",
    "has_own_host",
    "has_own_origin",
    "overviews_of",
    "stream_figures",
]

_MODULES: Final = {
    "SAMPLE_EVERY_S": "_mark_history",
    "ClusterRow": "_ports",
    "Console": "_app",
    "Figures": "_ports",
    "Overviews": "_overview",
    "SignedIn": "_ports",
    "has_own_host": "_guard",
    "has_own_origin": "_guard",
    "overviews_of": "_overview",
    "stream_figures": "_overview",
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Import a name at first use."""
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
