"""Copies of streams in another store: events in their order, watermarks, cuts, and where readers are.

A copy has the same segments as its source, split and merged at the same events, so every cut of the source has a
place in the copy. ``_records`` says what is written down about it, so that it can go on after a crash, ``_copy`` how it
goes on, ``_check`` how it is compared with its source, ``_cuts`` how a cut is translated, ``_store`` which streams and
groups there are to copy. Both stores are used only through :class:`penstock.Store`.
"""

from penstock.copying._cuts import translate_cut
from penstock.copying._store import CopyReport, copy_streams

__all__ = ["CopyReport", "copy_streams", "translate_cut"]
