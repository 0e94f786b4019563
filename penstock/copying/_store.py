"""Copying a store, or some of its streams, with the positions of consumers and reader groups."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from penstock.copying._copy import StreamCopy
from penstock.copying._cuts import CutTranslator
from penstock.copying._records import LOG_TAG
from penstock.errors import GroupExists, NoSuchGroup
from penstock.model import as_list
from penstock.repo import REPOSITORY_TAG, Repository, copy_revisions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from penstock.copying._copy import CopiedStream
    from penstock.model import StreamCut
    from penstock.store import Store

__all__ = ["CopiedRepository", "CopyReport", "copy_streams"]


@dataclass(frozen=True, slots=True)
class CopiedRepository:
    """What a copy has added to a repository."""

    name: str
    revisions: int
    items: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyReport:
    """What was copied; ``kept_groups`` are reader groups that the target had already, which stay where they are."""

    streams: tuple[CopiedStream, ...]
    repositories: tuple[CopiedRepository, ...]
    groups: tuple[str, ...]
    kept_groups: tuple[str, ...]


def copy_streams(
    source: Store,
    target: Store,
    names: Iterable[str] | None = None,
    *,
    on_progress: Callable[[str, str, int, int], object] = lambda stream, act, done, total: None,
) -> CopyReport:
    """Copy streams into another store, by default all of them, each up to its tail when its copy begins.

    Only what the target lacks is copied, so a copy that was interrupted goes on where it was, and a stream that has
    grown is continued. Reader groups whose streams are all copied, and consumers, continue in the copies where they
    were when this is called. ``on_progress`` gets a stream, what is done with it, the bytes that are done, and all of
    them.

    ``CopyFailed`` if the target has other events than the source, or the source was truncated; ``CopyDiffers`` if what
    is read from the target afterwards is not what was written.
    """
    infos = source.streams() if names is None else [source.stream(name) for name in as_list("names", names, "streams")]
    infos = [info for info in infos if names is not None or LOG_TAG not in info.config.tags]
    plain = [info.name for info in infos if REPOSITORY_TAG not in info.config.tags]
    groups = _groups(source, set(plain))
    consumers = {name: source.consumers(name) for name in plain}
    copies = {name: StreamCopy(source, target, name, partial(on_progress, name)) for name in plain}
    copied = [copy.run() for copy in copies.values()]
    repositories = [
        _copy_repository(source, target, info.name, partial(on_progress, info.name, "copying"))
        for info in infos
        if REPOSITORY_TAG in info.config.tags
    ]
    translators: dict[str, CutTranslator] = {}

    def translated(cut: StreamCut) -> StreamCut:
        if cut.stream not in translators:
            translators[cut.stream] = CutTranslator(source, target, cut.stream)
        return translators[cut.stream].translate(cut)

    for name, cuts in consumers.items():
        for consumer in cuts.keys() - target.consumers(name).keys():
            target.register_consumer(name, consumer, translated(cuts[consumer]))
    created = {name: _create_group(target, name, list(map(translated, cuts))) for name, cuts in groups.items()}
    for copy in copies.values():
        copy.finish()  # not before: retention would remove what readers that are not there yet have not read
    return CopyReport(
        streams=tuple(copied),
        repositories=tuple(repositories),
        groups=tuple(name for name, is_new in created.items() if is_new),
        kept_groups=tuple(name for name, is_new in created.items() if not is_new),
    )


def _groups(source: Store, streams: set[str]) -> Mapping[str, tuple[StreamCut, ...]]:
    """Return where the reader groups are that read only these streams."""
    found = {}
    for name in source.reader_groups():
        with suppress(NoSuchGroup):  # it was deleted meanwhile
            group = source.reader_group(name)
            if set(group.streams) <= streams:
                found[name] = group.position
    return found


def _create_group(target: Store, name: str, cuts: list[StreamCut]) -> bool:
    """Create a reader group; return False if there is one already."""
    try:
        target.create_reader_group(name, [cut.stream for cut in cuts], start=cuts)
    except GroupExists:
        return False
    return True


def _copy_repository(
    source: Store, target: Store, name: str, on_progress: Callable[[int, int], object]
) -> CopiedRepository:
    """Copy a repository as one: its events contain addresses, which are others in a copy."""
    copied = copy_revisions(
        Repository.open(source, name), Repository.open(target, name, create=True), on_progress=on_progress
    )
    return CopiedRepository(name, copied.revisions, copied.items)
