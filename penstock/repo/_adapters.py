"""Streams in the storage kind that a client asks for, whatever kinds they come in.

An adapted stream takes each item apart once, while it goes by, and remembers its text: later items may build on it. The
texts of other parents come from a basis store, such as the repository that the stream is for. An item that comes before
the text that it builds on is held until that has come.

The items of an adapted stream hold their texts and those of their parents, so they can be had as full texts, too, and
are not compressed before they are asked for; neither reads anything again. What is remembered lies in memory up to
``_MEMORY_MAX`` bytes, and in a temporary file above that.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from functools import cached_property
from itertools import groupby
from operator import itemgetter
from tempfile import SpooledTemporaryFile
from typing import TYPE_CHECKING, Any, Final, Self

from penstock.errors import BadArgument, BadRecord, MissingBasis, NoSuchKey, UnavailableRepresentation
from penstock.model import shown
from penstock.repo._block import size_in_block
from penstock.repo._held import HeldDeltas
from penstock.repo._records import ABSENT, FULLTEXT, Record
from penstock.repo.kinds import KINDS, annotate, decode, encode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from penstock.repo._keys import Key
    from penstock.repo._records import Factory, RecordStream

__all__ = ["AdaptedFactory", "AdaptedStream"]

_MEMORY_MAX: Final = 64 << 20
_WITHOUT_PARENTS: Final = {"fulltext", "knit-ft"}
_TEXT_OF_DELTA: Final = {"knit-delta": "knit-ft", "knit-annotated-delta": "knit-annotated-ft"}


class AdaptedStream:
    """The records of a stream, with all items in one storage kind, and as full texts beside it.

    A delta needs the text of the first parent. An item without one, or with one that neither the stream nor
    ``get_text`` knows, is a full text of the same family: ``knit-ft`` in place of ``knit-delta``. ``get_text`` and
    ``get_annotations`` are those of a basis store, as `penstock.repo.kinds` asks for them.
    """

    def __init__(
        self,
        stream: RecordStream,
        kind: str,
        *,
        get_text: Callable[[Key], bytes] | None = None,
        get_annotations: Callable[[Key], Sequence[bytes]] | None = None,
    ) -> None:
        if kind not in KINDS:
            raise BadArgument(f"unknown storage kind {shown(kind)}: use one of {', '.join(KINDS)}")
        self._stream, self._kind = stream, kind
        self._get_text, self._get_annotations = get_text, get_annotations

    def iter_contents(self) -> Iterator[Record]:
        """Return the records; an item that builds on a text that never comes is ``MissingBasis`` at the end."""
        with _Blobs() as texts, _Blobs() as origins:
            adapter = _Adapter(self._kind, texts, origins, self._get_text, self._get_annotations)
            for record in self._stream.iter_contents():
                entries = adapter.adapted(record)
                yield Record(record.key_prefix, entries)
                for _ in entries:  # a client may skip items that others build on
                    pass
                yield from adapter.released()
            adapter.check_end()


class AdaptedFactory:
    """An item with its full text at hand, compressed when it is asked for."""

    def __init__(
        self, factory: Factory, kind: str, text: bytes, encode_text: Callable[[], tuple[bytes, dict[str, Any] | None]]
    ) -> None:
        self.key, self.parents, self.storage_kind = factory.key, factory.parents, kind
        self._text, self._encode = text, encode_text

    @cached_property
    def sha1(self) -> str | None:
        """The sha1 of the full text."""
        return _sha1(self._text)

    @property
    def compressor_data(self) -> dict[str, Any] | None:
        """The data that the storage kind needs beside the bytes."""
        return self._encoded[1]

    @cached_property
    def _encoded(self) -> tuple[bytes, dict[str, Any] | None]:
        return self._encode()

    def get_bytes_as(self, storage_kind: str) -> bytes:
        """Return the item in the kind of the stream, or the full text."""
        if storage_kind == FULLTEXT:
            return self._text
        if storage_kind == self.storage_kind:
            return self._encoded[0]
        raise UnavailableRepresentation(self.key, storage_kind, self.storage_kind)


class _Adapter:
    """Adapts the items of one stream, from front to back."""

    def __init__(
        self,
        kind: str,
        texts: _Blobs,
        origins: _Blobs,
        get_text: Callable[[Key], bytes] | None,
        get_annotations: Callable[[Key], Sequence[bytes]] | None,
    ) -> None:
        self._kind, self._texts, self._origins = kind, texts, origins
        self._basis_text, self._basis_annotations = get_text, get_annotations
        self._is_annotated = "annotated" in kind
        self._held: HeldDeltas[tuple[Key, Factory]] = HeldDeltas()
        self._released: list[tuple[Key, Factory]] = []

    def adapted(self, record: Record) -> Iterator[Factory]:
        """Yield the items of a record, without those that are held."""
        for factory in record.entries:
            adapted = self._adapt(record.key_prefix, factory)
            if adapted is not None:
                yield adapted

    def released(self) -> Iterator[Record]:
        """Yield the items that were held, and for which the text has come; each may be what others are held for."""
        while self._released:
            released, self._released = self._released, []
            for prefix, items in groupby(released, key=itemgetter(0)):
                entries = list(self.adapted(Record(prefix, (factory for _, factory in items))))
                if entries:
                    yield Record(prefix, iter(entries))

    def check_end(self) -> None:
        """Require that no item is held any more."""
        for basis, (prefix, factory) in self._held:
            raise MissingBasis(prefix + factory.key, basis)

    def _adapt(self, prefix: Key, factory: Factory) -> Factory | None:
        """Return an item in the kind of the stream; None if it is held."""
        if factory.storage_kind == ABSENT:
            return factory
        key, parents = prefix + factory.key, tuple(prefix + parent for parent in factory.parents)
        try:
            text = self._text_of(factory, key, parents)
        except MissingBasis as error:
            size = size_in_block(key, parents, factory.get_bytes_as(factory.storage_kind))
            self._held.hold(error.basis, (prefix, factory), key=key, size=size)
            return None
        self._texts.add(key, text)
        self._released += self._held.release(key)
        kind, bases = self._kind, {} if self._kind in _WITHOUT_PARENTS else self._known(parents)
        if kind in _TEXT_OF_DELTA and not (parents and parents[0] in bases):
            kind = _TEXT_OF_DELTA[kind]
        get_annotations = None
        if self._is_annotated:
            get_annotations = {parent: self._annotations(parent, text) for parent, text in bases.items()}.__getitem__
            origins = annotate(
                text, key=key, parents=parents, get_text=bases.__getitem__, get_annotations=get_annotations
            )
            self._origins.add(key, b"\n".join(origins))
        if factory.storage_kind == kind:
            data = factory.get_bytes_as(kind), factory.compressor_data
            return AdaptedFactory(factory, kind, text, lambda: data)
        return AdaptedFactory(
            factory,
            kind,
            text,
            lambda: encode(
                kind, text, key=key, parents=parents, get_text=bases.__getitem__, get_annotations=get_annotations
            ),
        )

    def _text_of(self, factory: Factory, key: Key, parents: tuple[Key, ...]) -> bytes:
        """Return the full text of an item, checked against its sha1 if that is known."""
        try:
            text = factory.get_bytes_as(FULLTEXT)
        except UnavailableRepresentation:
            kind = factory.storage_kind
            text = decode(
                kind,
                factory.get_bytes_as(kind),
                key=key,
                parents=parents,
                compressor_data=factory.compressor_data,
                get_text=self._text,
            )
        if factory.sha1 is not None and factory.sha1 != _sha1(text):
            raise BadRecord(key, f"the text has the sha1 {_sha1(text)}, and should have {factory.sha1}")
        return text

    def _text(self, key: Key) -> bytes:
        """Return a text of the stream or of the basis store; ``KeyError`` or `NoSuchKey` if neither has it."""
        if key in self._texts or self._basis_text is None:
            return self._texts[key]
        return self._basis_text(key)

    def _known(self, parents: tuple[Key, ...]) -> dict[Key, bytes]:
        texts = {}
        for parent in parents:
            with suppress(KeyError, NoSuchKey):
                texts[parent] = self._text(parent)
        return texts

    def _annotations(self, key: Key, text: bytes) -> Sequence[bytes]:
        if key in self._origins:
            origins = self._origins[key]
            return origins.split(b"\n") if origins else []
        if self._basis_annotations is not None:
            return self._basis_annotations(key)
        return annotate(text, key=key, parents=(), get_text=self._text)


class _Blobs:
    """Bytes under keys, in memory or, if they are many, in a temporary file."""

    def __init__(self) -> None:
        self._file = SpooledTemporaryFile(_MEMORY_MAX)  # noqa: SIM115 - closed by __exit__
        self._places: dict[Key, tuple[int, int]] = {}
        self._size = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __contains__(self, key: Key) -> bool:
        return key in self._places

    def __getitem__(self, key: Key) -> bytes:
        place, size = self._places[key]
        self._file.seek(place)
        return self._file.read(size)

    def add(self, key: Key, blob: bytes) -> None:
        """Remember bytes."""
        self._file.seek(self._size)
        self._file.write(blob)
        self._places[key] = self._size, len(blob)
        self._size += len(blob)


def _sha1(text: bytes) -> str:
    return hashlib.sha1(text, usedforsecurity=False).hexdigest()
