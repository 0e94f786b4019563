"""The storage kinds of repository streams: how a text is kept in the bytes of a record.

:func:`encode` makes the bytes of each of the six kinds and :func:`decode` reads them, as Breezy does; Breezy has the
knit kinds gzipped. A key is a tuple of bytes, and the last element of a key is the name that a record has for it.
:func:`annotate` says which version each line of a text comes from.
"""

from penstock.repo.kinds._annotations import annotate
from penstock.repo.kinds._kinds import KINDS, decode, encode

__all__ = ["KINDS", "annotate", "decode", "encode"]
