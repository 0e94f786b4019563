"""Times of FutoIn events as watermarks: which streams have them, and the writer by which the server notes them."""

from __future__ import annotations

from typing import Final

__all__ = ["TIME_TAG", "TIME_WRITER"]

TIME_TAG: Final = "futoin-time"
"""The tag of a stream in which the times of added events are noted."""

TIME_WRITER: Final = "futoin"
"""A writer id of the server's own: in streams with the tag, no user may open it but an administrator."""
