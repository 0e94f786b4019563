"""The screens: the table of streams, the details of one of them, and the help.

Figures are asked for in a thread, one question at a time, so that keys are answered while an owner is silent. What the
last answer had stays on the screen until the next one comes; the line above the table says how old it is.
"""

from __future__ import annotations

import asyncio
import signal
from datetime import UTC, datetime
from typing import TYPE_CHECKING, ClassVar, Final

import msgspec
from rich.text import Text
from textual.app import App
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import Screen
from textual.widgets import Input, Static

from penstock.errors import PenstockError
from penstock.top._details import detail_lines
from penstock.top._source import Query
from penstock.top._table import heading, summary, table_columns, table_row
from penstock.top._text import fitted, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from textual.app import ComposeResult
    from textual.events import Resize

    from penstock.top._figures import Overview, StreamFigures
    from penstock.top._source import Order, Source

__all__ = ["EVERY_S", "TopApp"]

EVERY_S: Final = 1.0
_FILTER_SIZE_MAX: Final = 255
_LINES_AROUND: Final = 4  # above and below the rows of the table
_KEYS: Final = "q quit  / filter  Enter details  n e b t l x sort  ? help"
_HELP: Final = """\
penstock top shows the streams of a store, and asks for new figures every second.

  up, down       select a stream
  Page Up/Down   go to the previous or next streams
  Home, End      go to the first or last stream
  Enter          show the details of the selected stream
  /              show only streams whose names contain a text (Esc: all)
  n e b t l x    sort by name, events/s, bytes/s, time, lag, transactions
  ?              show this help
  Esc            go back
  q, Ctrl-C      quit
  Ctrl-Z         stop, until fg continues it

time           how far the last watermark is behind the clock
lag            the age of the oldest event that a reader group has not read
txn            open and prepared transactions
held back by   the writer that the watermark waits for, or the slowest group
"""


class _Lines(Static):
    """Lines of text, in which nothing is markup."""

    def show(self, lines: Iterable[str], *, selected: int | None = None) -> None:
        """Show lines; one of them is selected, which is seen without colours, too."""
        texts = [Text(line, "reverse" if number == selected else "") for number, line in enumerate(lines)]
        self.update(Text("\n", no_wrap=True, overflow="crop").join(texts))


class _Figures(Screen[None]):
    """A screen that asks for figures once a second, and says when no answer comes."""

    def __init__(self) -> None:
        super().__init__()
        self._is_asking = self._asks_again = False
        self._trouble: str | None = None
        self._answered_ms: int | None = None

    def on_mount(self) -> None:
        """Begin to ask."""
        self.set_interval(EVERY_S, self.ask)
        self.ask()

    def ask(self) -> None:
        """Ask now, or as soon as the question that is under way is answered."""
        if self._is_asking:
            self._asks_again = True
            return
        self._is_asking = True
        self.run_worker(self._asked())

    async def _asked(self) -> None:
        self._asks_again = False
        show: Callable[[], None] | None = None
        try:
            show = await asyncio.to_thread(self.question())
        except PenstockError as error:
            self._trouble = printable(str(error))
        else:
            self._trouble = None
        self._is_asking = False
        if self.is_attached:
            if show is not None:
                show()
            self.redraw()
            if self._asks_again:
                self.ask()

    def question(self) -> Callable[[], Callable[[], None]]:
        """Return a function for a thread, which asks, and returns a function that takes the answer."""
        raise NotImplementedError

    def redraw(self) -> None:
        """Show what is known."""
        raise NotImplementedError

    def head(self, title: str, below: str) -> list[str]:
        """Return two lines: when the figures are of, and something else, or why there are no newer ones."""
        at = "no figures yet"
        if self._answered_ms is not None:
            at = f"{datetime.fromtimestamp(self._answered_ms / 1000, UTC):%H:%M:%SZ}"
        below = below if self._trouble is None else f"NO NEW FIGURES, trying again: {self._trouble}"
        return [fitted(f"{title}  {at}", self.size.width), fitted(below, self.size.width)]


class StreamTable(_Figures):
    """The table of streams."""

    AUTO_FOCUS: ClassVar[str | None] = ""  # the field of the filter would take all keys
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)"),
        Binding("down", "move(1)"),
        Binding("pageup", "turn(-1)"),
        Binding("pagedown", "turn(1)"),
        Binding("home", "go(False)"),
        Binding("end", "go(True)"),
        Binding("enter", "details"),
        Binding("slash", "filter"),
        Binding("escape", "show_all"),
        Binding("question_mark", "help"),
        Binding("q", "app.quit"),
        *(
            Binding(key, f"sort('{order}')")
            for key, order in zip("nebtlx", ("name", "events", "bytes", "time", "lag", "transactions"), strict=True)
        ),
    ]

    def __init__(self, source: Source, address: str, query: Query) -> None:
        super().__init__()
        self._source, self._address, self._wanted = source, printable(address), query
        self._overview: Overview | None = None
        self._selected = 0

    def compose(self) -> ComposeResult:
        """Return the lines of the screen."""
        yield _Lines(id="head")
        yield _Lines(id="table")
        yield Input(placeholder="a part of the name", max_length=_FILTER_SIZE_MAX, id="filter")
        yield _Lines(id="foot")

    def on_mount(self) -> None:
        """Begin to ask."""
        field = self.query_one(Input)
        field.display = False
        field.value = self._wanted.contains
        self.set_focus(None)
        super().on_mount()

    def on_resize(self, event: Resize) -> None:
        """Show as many rows as there is space for."""
        self._change(limit=max(1, event.size.height - _LINES_AROUND))

    def question(self) -> Callable[[], Callable[[], None]]:
        """Ask for the rows that are on the screen."""
        source, query = self._source, self._wanted

        def ask() -> Callable[[], None]:
            answer = source.overview(query)
            return lambda: self._take(query, answer)

        return ask

    def _take(self, query: Query, answer: Overview) -> None:
        if query == self._wanted:  # or it was changed meanwhile, and is asked again
            self._overview, self._answered_ms = answer, answer.now_ms
            self._wanted = msgspec.structs.replace(query, first=answer.first)
            self._selected = min(self._selected, max(0, len(answer.streams) - 1))

    def redraw(self) -> None:
        """Show the newest rows."""
        width, overview = self.size.width, self._overview
        head = self.head(f"penstock top  {self._address}", "" if overview is None else summary(overview))
        rows: list[str] = []
        if overview is not None:
            columns = table_columns(max(1, width - 2))
            head.append(f"  {heading(columns, self._wanted.order)}")
            for number, row in enumerate(overview.streams):
                mark = ">" if number == self._selected else " "
                rows.append(f"{mark} {table_row(columns, row)}")
            if not rows:
                rows = ["  no stream matches the filter" if self._wanted.contains else "  there are no streams"]
        self.query_one("#head", _Lines).show(head)
        self.query_one("#table", _Lines).show(rows, selected=self._selected if overview and overview.streams else None)
        self.query_one("#foot", _Lines).show([fitted(f"{self._places()}{_KEYS}", width)])

    def _places(self) -> str:
        overview = self._overview
        if overview is None or not overview.streams or len(overview.streams) == overview.found:
            return ""
        return f"{overview.first + 1}-{overview.first + len(overview.streams)} of {overview.found}  "

    def _change(self, **changes: object) -> None:
        changed = msgspec.structs.replace(self._wanted, **changes)
        if changed != self._wanted:
            self._wanted = changed
            self.ask()

    def action_move(self, by: int) -> None:
        """Select the next or the previous stream."""
        overview = self._overview
        if overview is None:
            return
        selected = self._selected + by
        if 0 <= selected < len(overview.streams):
            self._selected = selected
            self.redraw()
        elif selected < 0 and self._wanted.first > 0:
            self._change(first=self._wanted.first - 1)
        elif selected > 0 and overview.first + len(overview.streams) < overview.found:
            self._change(first=self._wanted.first + 1)

    def action_turn(self, by: int) -> None:
        """Go to the next or the previous streams."""
        overview, limit = self._overview, self._wanted.limit
        if overview is not None:
            last = max(0, overview.found - limit)
            self._change(first=min(max(0, self._wanted.first + by * limit), last))

    def action_go(self, to_end: bool) -> None:
        """Go to the first or the last stream."""
        overview, limit = self._overview, self._wanted.limit
        if overview is not None:
            self._selected = min(limit, overview.found) - 1 if to_end else 0
            self._change(first=max(0, overview.found - limit) if to_end else 0)
            self.redraw()

    def action_sort(self, order: Order) -> None:
        """Sort all streams by something, and begin at the first."""
        self._selected = 0
        self._change(order=order, first=0)

    def action_filter(self) -> None:
        """Let the user enter a part of the name."""
        field = self.query_one(Input)
        field.display = True
        field.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Show only the streams that match."""
        self._close_filter(event.value.strip())

    def action_show_all(self) -> None:
        """Show all streams again."""
        self._close_filter("")

    def _close_filter(self, contains: str) -> None:
        field = self.query_one(Input)
        field.value = contains
        field.display = False
        self.set_focus(None)
        self._selected = 0
        self._change(contains=contains, first=0)

    def action_details(self) -> None:
        """Show the details of the selected stream."""
        overview = self._overview
        if overview is not None and overview.streams:
            name = overview.streams[min(self._selected, len(overview.streams) - 1)].name
            self.app.push_screen(StreamDetails(self._source, name))

    def action_help(self) -> None:
        """Show the keys and the meaning of the columns."""
        self.app.push_screen(Help())


_BACK: Final[list[BindingType]] = [Binding("escape", "app.pop_screen"), Binding("q", "app.pop_screen")]


class StreamDetails(_Figures):
    """The details of one stream."""

    BINDINGS: ClassVar[list[BindingType]] = _BACK

    def __init__(self, source: Source, name: str) -> None:
        super().__init__()
        self._source, self._stream = source, name
        self._detail_lines: list[str] = []

    def compose(self) -> ComposeResult:
        """Return the lines of the screen; those of the stream can be scrolled."""
        yield _Lines(id="head")
        with VerticalScroll():
            yield _Lines(id="details")
        yield _Lines(id="foot")

    def question(self) -> Callable[[], Callable[[], None]]:
        """Ask for the details."""
        source, name = self._source, self._stream

        def ask() -> Callable[[], None]:
            figures = source.stream(name)
            return lambda: self._take(figures)

        return ask

    def _take(self, figures: StreamFigures) -> None:
        self._detail_lines, self._answered_ms = detail_lines(figures), figures.stream.now_ms

    def redraw(self) -> None:
        """Show the newest details."""
        self.query_one("#head", _Lines).show(self.head(self._stream, ""))
        self.query_one("#details", _Lines).show(self._detail_lines)
        self.query_one("#foot", _Lines).show(["Esc back  up, down scroll"])


class Help(Screen[None]):
    """The keys, and what the columns mean."""

    BINDINGS: ClassVar[list[BindingType]] = _BACK

    def compose(self) -> ComposeResult:
        """Return the text."""
        with VerticalScroll():
            yield _Lines(id="details")

    def on_mount(self) -> None:
        """Show the text."""
        self.query_one("#details", _Lines).show(_HELP.splitlines())


class TopApp(App[None]):
    """``penstock top``, until the user quits."""

    TITLE: str | None = "penstock top"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "quit", priority=True),
        Binding("ctrl+z", "suspend_process", priority=True),
    ]
    CSS = """
    #head { height: 3; text-style: bold; }
    #table { height: 1fr; }
    #filter { height: 1; border: none; padding: 0; }
    #foot { height: 1; }
    VerticalScroll { height: 1fr; }
    """

    def __init__(self, source: Source, address: str, query: Query | None = None) -> None:
        super().__init__()
        self._source, self._address, self._wanted = source, address, query or Query()

    def on_mount(self) -> None:
        """Show the table; the terminal is as it was before when SIGTERM has ended this."""
        code = 128 + signal.SIGTERM
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: self.exit(return_code=code))
        self.push_screen(StreamTable(self._source, self._address, self._wanted))
