"""Repository streams: versioned content as one forward-only stream of records, kept on a Penstock stream.

A repository stores items under keys: revisions, inventories, signatures and texts. They are streamed out by a search
over the revisions, from front to back in one go, and inserted the same way; a bundle is such a stream in one file.
"""

from penstock.repo._adapters import AdaptedStream
from penstock.repo._bundle import Bundle, BundleResult
from penstock.repo._contents import RepositoryContents
from penstock.repo._copy import CopyResult, copy_revisions
from penstock.repo._inventory import Inventory, InventoryEntry
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
from penstock.repo._refs import REFS, TAGS, Ref
from penstock.repo._repository import REPOSITORY_TAG, Repository
from penstock.repo._results import InsertResult, RepositoryPart
from penstock.repo._revision import Person, RevisionText
from penstock.repo._search import AncestryOf, Between, Everything, Revisions, Search, requested_search
from penstock.repo._serialised import blocks_of
from penstock.repo._stream import RepositoryStream, StreamCheck

__all__ = [
    "INVENTORIES",
    "REFS",
    "REPOSITORY_TAG",
    "REVISIONS",
    "SIGNATURES",
    "TAGS",
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
    "CopyResult",
    "Everything",
    "Factory",
    "InsertResult",
    "Inventory",
    "InventoryEntry",
    "Key",
    "Person",
    "Record",
    "RecordStream",
    "Ref",
    "Repository",
    "RepositoryContents",
    "RepositoryPart",
    "RepositoryStream",
    "RevisionText",
    "Revisions",
    "Search",
    "StreamCheck",
    "blocks_of",
    "copy_revisions",
    "key_name",
    "requested_search",
]
