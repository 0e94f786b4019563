"""Repository streams: versioned content as one forward-only stream of records, kept on a Penstock stream.

A repository stores items under keys: revisions, inventories, signatures and texts. They are streamed out by a search
over the revisions, from front to back in one go, and inserted the same way; a bundle is such a stream in one file.
"""

from penstock.repo._adapters import AdaptedStream
from penstock.repo._bundle import Bundle, BundleResult
from penstock.repo._contents import RepositoryContents
from penstock.repo._keys import INVENTORIES, REVISIONS, SIGNATURES, TEXTS, Key, key_name
from penstock.repo._records import (
    TOPOLOGICAL,
    UNORDERED,
    AbsentFactory,
    ContentFactory,
    Factory,
    Record,
    RecordStream,
)
from penstock.repo._repository import InsertResult, Repository, RepositoryPart
from penstock.repo._search import AncestryOf, Between, Everything, Revisions, Search, requested_search
from penstock.repo._serialised import blocks_of
from penstock.repo._stream import RepositoryStream, StreamCheck

__all__ = [
    "INVENTORIES",
    "REVISIONS",
    "SIGNATURES",
    "TEXTS",
    "TOPOLOGICAL",
    "UNORDERED",
    "AbsentFactory",
    "AdaptedStream",
    "AncestryOf",
    "Between",
    "Bundle",
    "BundleResult",
    "ContentFactory",
    "Everything",
    "Factory",
    "InsertResult",
    "Key",
    "Record",
    "RecordStream",
    "Repository",
    "RepositoryContents",
    "RepositoryPart",
    "RepositoryStream",
    "Revisions",
    "Search",
    "StreamCheck",
    "blocks_of",
    "key_name",
    "requested_search",
]
