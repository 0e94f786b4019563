"""Repositories: their size and speed beside git and Breezy, in one run, in turns, on two histories.

Run it on an otherwise idle machine: ``python -m bench.repo [FOLDER]``; the folder is made, filled and removed. One
history is that of this checkout, if it is one of git; the other has 5,000 revisions and is made from a seed. Size and
memory are measured at a quarter and at four times as many, too. git packs all as tightly as it can (``--depth=250
--window=250``), and is read through Python's ``subprocess``, in the order of its pack. Breezy runs in a process of its
own, and measures itself. Deltas and reads of one text take the time of one processor, on both sides, which other work
on the machine makes less noisy than that of a clock.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import penstock
from bench._history import make_history
from bench._measure import Figure, compare, rate, report
from bench.growth import GROWTH_MAX, milliseconds
from bench.server import SERVE, process
from penstock.embedded import open_store
from penstock.repo import TEXTS, TOPOLOGICAL, UNORDERED, Everything, Ref, Repository, copy_revisions
from penstock.repo.git import import_git
from penstock.repo.kinds import encode
from tests.repo import breezy_oracle
from tests.repo.streams import history

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from penstock.model import EventPointer
    from penstock.repo import Key, RepositoryContents
    from penstock.repo._stream import Ordering
    from penstock.store import Store
    from penstock.stream import Engine

ROUNDS = 5
REVISIONS = 5_000
LENGTHS = (REVISIONS // 4, REVISIONS, 4 * REVISIONS)  # of the histories whose size and memory are measured
PAIRS, READS, AGAIN = 400, 60, 10
SIZE_MAX = 1.3  # of git's pack
TIMES_GIT, ENOUGH_MB = 5.0, 100.0  # how quickly texts are to be streamed: whichever is less
TIMES_BREEZY = 2.0
OPENED_TEXTS = (1_000, 10_000, 100_000)
PULLED_FROM = (1_000, 10_000)
STREAM = "bench/repository"
ROOT = Path(__file__).parent.parent
MB = 1e6

IMPORTED = """
import sys
from pathlib import Path
from penstock.embedded import open_store
from penstock.repo import Repository
from penstock.repo.git import import_git
with open_store(Path(sys.argv[1])) as store:
    import_git(sys.argv[3], Repository.open(store, sys.argv[2], create=True))
"""
STREAMED = """
import sys
from pathlib import Path
from penstock.embedded import open_store
from penstock.repo import Everything, Repository
with open_store(Path(sys.argv[1])) as store:
    stream = Repository.open(store, sys.argv[2]).get_repository_stream(Everything(), sys.argv[3])
    for record in stream.iter_contents():
        for factory in record.entries:
            factory.get_bytes_as("fulltext")
"""
PEAK = """
status = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
print(status["VmHWM"].split()[0])
"""


@dataclass(frozen=True)
class Subject:
    """A history, in git and in a store."""

    name: str
    git: Path
    folder: Path
    store: Store
    repository: Repository


def git_histories(folder: Path) -> Iterator[tuple[str, Path]]:
    """Give the histories to measure, packed tightly by git."""
    own = folder / "own.git"
    if (ROOT / ".git").exists():
        command = ["git", "clone", "-q", "--bare", "--no-local", "--single-branch", str(ROOT), str(own)]
        subprocess.run(command, check=True)
        yield "this repository", own
    else:
        print("without the history of this repository: the checkout has no .git")
    yield f"{REVISIONS:,} revisions", make_history(folder / "made.git", REVISIONS)


@contextmanager
def imported(folder: Path, name: str, git: Path) -> Iterator[tuple[Subject, Figure]]:
    """Import a history into a store of its own; give it, and how quick that was."""
    pack_tightly(git)
    place = folder / git.stem
    with open_store(place) as store:
        repository = Repository.open(store, STREAM, create=True)
        start = time.perf_counter()
        revisions = import_git(git, repository).revisions
        taken = time.perf_counter() - start
        detail = {"revisions/s": revisions / taken, "revisions": revisions, "s": taken}
        yield Subject(name, git, place, store, repository), Figure(f"import from git, {name}", detail=detail)


def pack_tightly(git: Path) -> int:
    """Let git pack a history as tightly as it can; return the bytes of the pack, without its index."""
    subprocess.run(["git", "-C", str(git), "repack", "-adfq", "--depth=250", "--window=250"], check=True)
    return sum(file.stat().st_size for file in git.glob("objects/pack/*.pack"))


def size(subject: Subject) -> Iterator[Figure]:
    """Measure how many bytes the stream has, against git's pack without its index."""
    pack = sum(file.stat().st_size for file in subject.git.glob("objects/pack/*.pack"))
    ours = subject.store.stream(STREAM).size_bytes
    raw = sum(map(len, texts_of(subject.repository).values()))
    detail = {"MB": ours / MB, "git's pack MB": pack / MB, "texts MB": raw / MB}
    yield Figure(f"git's packed bytes against ours, {subject.name}", pack / ours, 1 / SIZE_MAX, detail)


def texts_of(repository: RepositoryContents) -> dict[Key, bytes]:
    """Return all texts of files."""
    return {
        (*record.key_prefix, *factory.key): factory.get_bytes_as("fulltext")
        for record in repository.get_repository_stream(Everything()).iter_contents()
        if record.key_prefix[:1] == (TEXTS,)
        for factory in record.entries
    }


def streamed(
    repository: Repository,
    ordering: Ordering = UNORDERED,
    *,
    complete_inventory: bool = False,
    everything: bool = False,
) -> float:
    """Return bytes/s of streaming the full texts of files, or of everything."""

    def work() -> int:
        stream = repository.get_repository_stream(Everything(), ordering, complete_inventory)
        return sum(
            len(factory.get_bytes_as("fulltext"))
            for record in stream.iter_contents()
            if everything or record.key_prefix[:1] == (TEXTS,)
            for factory in record.entries
        )

    return rate(work)


def streams(subject: Subject) -> Iterator[Figure]:
    """Compare streams with ``git cat-file --batch``, which reads each of the same texts once."""
    blobs = {blob_id(text) for text in texts_of(subject.repository).values()}
    listing = ["git", "-C", str(subject.git), "cat-file", "--batch-all-objects", "--unordered", "--batch-check"]
    in_pack = [
        line.split(b" ")[0] for line in subprocess.run(listing, capture_output=True, check=True).stdout.split(b"\n")
    ]
    wanted = subject.folder.with_suffix(".blobs")
    wanted.write_bytes(b"".join(name + b"\n" for name in in_pack if name in blobs))
    theirs = partial(rate, partial(read_git, subject.git, wanted))

    def reopened(**options: Any) -> float:  # noqa: ANN401 - as streamed() takes them
        return streamed(Repository.open(subject.store, STREAM), **options)

    ways: dict[str, Callable[[], float]] = {
        "all texts": reopened,
        "all texts, topological": partial(reopened, ordering=TOPOLOGICAL),
        "everything, complete inventories": partial(reopened, complete_inventory=True, everything=True),
    }
    for way, ours in ways.items():
        ratio, mine, other, spread = compare(ours, theirs, rounds=ROUNDS)
        floor = min(TIMES_GIT, ENOUGH_MB * MB / other)
        detail = {"MB/s": mine / MB, "git MB/s": other / MB}
        yield Figure(f"stream {way}, against git, {subject.name}", ratio, floor, detail, spread)


def from_server(subject: Subject) -> Iterator[Figure]:
    """Measure the same stream from a server, whose store no other process has."""
    subject.store.close()
    with process(SERVE, str(subject.folder)) as port, penstock.connect(f"penstock://127.0.0.1:{port}") as store:
        repository = Repository.open(store, STREAM)
        rates = [streamed(repository) for _ in range(ROUNDS)]
    detail = {"MB/s": statistics.median(rates) / MB}
    yield Figure(f"stream all texts from a server, {subject.name}", detail=detail)


def blob_id(text: bytes) -> bytes:
    """Return what git calls a text."""
    return hashlib.sha1(b"blob %d\0%b" % (len(text), text), usedforsecurity=False).hexdigest().encode()


def read_git(git: Path, wanted: Path) -> int:
    """Read objects from git; return how many bytes they have."""
    total = 0
    command = ["git", "-C", str(git), "cat-file", "--batch"]
    with wanted.open("rb") as names, subprocess.Popen(command, stdin=names, stdout=subprocess.PIPE) as reader:
        assert reader.stdout is not None
        for header in reader.stdout:
            length = int(header.rsplit(b" ", 1)[1])
            total += len(reader.stdout.read(length))
            reader.stdout.read(1)
    return total


class Breezy:
    """The process of bench/_breezy.py."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, name: str, *arguments: object) -> Any:  # noqa: ANN401 - as the function returns
        """Return the answer to a request."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([name, *map(str, arguments)]) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


@contextmanager
def breezy(home: Path) -> Iterator[Breezy]:
    """Run Breezy."""
    command = [sys.executable, "-P", str(Path(__file__).with_name("_breezy.py"))]
    environment = breezy_oracle.environment(home)
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        yield Breezy(process)
        process.communicate()


def deltas(subject: Subject, theirs: Breezy) -> Iterator[Figure]:
    """Compare knit deltas of texts on their first parents, from bytes, with what Breezy makes of the same texts."""
    repository = subject.repository
    texts = texts_of(repository)
    with_parents = [key for key in texts if any(parent in texts for parent in repository.parents(key)[:1])]
    chosen = random.Random(18).sample(with_parents, min(PAIRS, len(with_parents)))
    pairs = [(texts[repository.parents(key)[0]], texts[key]) for key in chosen]
    place = subject.folder.with_suffix(".pairs")
    place.write_bytes(pickle.dumps(pairs))
    key, parents = (b"new",), ((b"basis",),)

    def encoded(pair: tuple[bytes, bytes]) -> bytes:
        return encode("knit-delta", pair[1], key=key, parents=parents, get_text=lambda _: pair[0])[0]

    def ours() -> float:
        pairs = pickle.loads(place.read_bytes())  # as the other side does, so that caches are as warm
        start = time.thread_time()
        for pair in pairs:
            encoded(pair)
        return len(pairs) / (time.thread_time() - start)

    ways: dict[str, Callable[[], float]] = {
        "add_lines, lines in memory": lambda: len(pairs) / theirs.ask("add_lines", place),
        "delta code alone": lambda: len(pairs) / theirs.ask("delta", place)[0],
    }
    for way, other in ways.items():
        ratio, mine, others, spread = compare(ours, other, rounds=ROUNDS)
        detail = {"/s": mine, "theirs/s": others}
        yield Figure(f"knit deltas, against Breezy's {way}, {subject.name}", ratio, TIMES_BREEZY, detail, spread)
    frame = len(encode("knit-delta", b"", key=key, parents=parents, get_text=lambda _: b"")[0])
    size = sum(len(encoded(pair)) - frame for pair in pairs)
    their_size = theirs.ask("delta", place)[1]
    detail = {"kB": size / 1e3, "theirs kB": their_size / 1e3}
    yield Figure(f"bytes of knit deltas, Breezy's against ours, {subject.name}", their_size / size, 0.99, detail)


def reads(subject: Subject, theirs: Breezy) -> Iterator[Figure]:
    """Compare reads of one text, at random, with a pack of groups as Breezy has it on disk."""
    repository = subject.repository
    texts = texts_of(repository)
    rows = [
        (_plain(key), tuple(_plain(parent) for parent in repository.parents(key)), text) for key, text in texts.items()
    ]
    rows.reverse()  # the newest first, and those of a file side by side
    rows.sort(key=lambda row: row[0][0])
    place, pack = subject.folder.with_suffix(".texts"), subject.folder.with_suffix(".breezy")
    pack.mkdir()
    place.write_bytes(pickle.dumps(rows))
    size = theirs.ask("store", place, pack)
    chosen = random.Random(18).sample(sorted(texts), READS)
    place.write_bytes(pickle.dumps([_plain(key) for key in chosen]))
    rounds = [(read_times(subject.store, chosen), theirs.ask("read", pack, place, AGAIN)) for _ in range(ROUNDS)]
    names = {
        "opened": "open and read a text",
        "cold": "read a text, its block not in memory",
        "warm": "read a text, its block in memory",
    }
    for how, what in names.items():
        times = [[statistics.median(taken[how]) * 1e6 for taken in pair] for pair in rounds]
        ratio = statistics.median(other / mine for mine, other in times)
        mine, other = (statistics.median(row[side] for row in times) for side in (0, 1))
        detail = {"us": mine, "theirs us": other}
        yield Figure(f"{what}, Breezy against ours, {subject.name}", ratio, 1.0, detail)
    yield Figure(f"bytes of Breezy's pack of texts, {subject.name}", detail={"MB": size / MB})


def _plain(key: Key) -> Key:
    """Return the key of a text as Breezy takes it: without what says that it is one, and without spaces."""
    return tuple(part.replace(b" ", b"%20") for part in key[1:])


def read_times(store: Store, keys: list[Key]) -> dict[str, list[float]]:
    """Read texts, each from a repository just opened, then each again and again from one; return the seconds."""
    taken: dict[str, list[float]] = {"opened": [], "cold": [], "warm": []}
    for key in keys:
        start = time.thread_time()
        repository = Repository.open(store, STREAM)
        opened = time.thread_time()
        repository.text(key)
        end = time.thread_time()
        taken["opened"].append(end - start)
        taken["cold"].append(end - opened)
    repository = Repository.open(store, STREAM)
    for key in keys:
        repository.text(key)
        start = time.thread_time()
        for _ in range(AGAIN):
            repository.text(key)
        taken["warm"].append((time.thread_time() - start) / AGAIN)
    return taken


def growth(folder: Path) -> Iterator[Figure]:
    """Measure how the size of a repository, and the memory to import and to stream it, grow with a history."""
    sizes: dict[int, float] = {}
    peaks: dict[str, list[float]] = {"imports": [], UNORDERED: [], TOPOLOGICAL: []}
    for revisions in LENGTHS:
        git = make_history(folder / f"grown-{revisions}.git", revisions)
        pack, place = pack_tightly(git), folder / f"grown-{revisions}"
        peaks["imports"].append(peak_mb(IMPORTED, place, str(git)))
        with open_store(place) as store:
            sizes[revisions] = pack / store.stream(STREAM).size_bytes
        for ordering in (UNORDERED, TOPOLOGICAL):
            peaks[ordering].append(peak_mb(STREAMED, place, ordering))
    detail = {f"at {count:,}": ratio for count, ratio in sizes.items()}
    yield Figure("git's packed bytes against ours, at the least", min(sizes.values()), 1 / SIZE_MAX, detail)
    for work, found in peaks.items():
        detail = {f"MB at {count:,}": peak for count, peak in zip(LENGTHS, found, strict=True)}
        name = "imports" if work == "imports" else f"streams, {work}"
        floor = None if work == "imports" else 1 / GROWTH_MAX
        yield Figure(f"memory of a process that {name}, so many revisions", found[0] / found[-1], floor, detail)


def peak_mb(script: str, place: Path, argument: str) -> float:
    """Return the peak of the resident memory of a process that runs a script on a store, in MB."""
    command = [sys.executable, "-c", script + PEAK, str(place), STREAM, argument]
    return int(subprocess.run(command, capture_output=True, check=True).stdout) * 1024 / MB


def opening(folder: Path) -> Iterator[Figure]:
    """Measure how long it takes to open a repository in a store that is open, and how many bytes that reads."""
    with ExitStack() as stack:
        stores = []
        for count in OPENED_TEXTS:
            store = stack.enter_context(open_store(folder / f"open-{count}"))
            repository = Repository.open(store, STREAM, create=True)
            for start in range(0, count, 1_000):
                repository.insert_stream(history(1_000, files=50, start=start, text=b"line\n"))
            stores.append(store)
        rounds = [[milliseconds(partial(Repository.open, store, STREAM)) for store in stores] for _ in range(9)]
        times = [statistics.median(column) for column in zip(*rounds, strict=True)]
        detail = {f"ms at {count:,}": ms for count, ms in zip(OPENED_TEXTS, times, strict=True)}
        detail |= {f"kB at {count:,}": kilobytes_read(store) for count, store in zip(OPENED_TEXTS, stores, strict=True)}
        yield Figure("open a repository, of so many texts and twice as many other items", detail=detail)


class CountingStore:
    """A store that counts the bytes of the events that are read from it."""

    def __init__(self, store: Engine) -> None:
        self._store, self.bytes_read = store, 0

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - as the store has it
        return getattr(self._store, name)

    def fetch_event_as_stream(self, pointer: EventPointer) -> io.BytesIO:
        """Return one event as a file; all of it counts."""
        event = self._store.fetch_event(pointer)
        self.bytes_read += len(event)
        return io.BytesIO(event)

    def read(self, *args: Any, **options: Any) -> Iterator[pa.RecordBatch]:  # noqa: ANN401 - as the store takes them
        """Return events in batches."""
        for batch in self._store.read(*args, **options):
            self.bytes_read += batch.nbytes
            yield batch


def kilobytes_read(store: Engine) -> float:
    """Return how many kilobytes of events are read to open a repository."""
    counting = CountingStore(store)
    Repository.open(cast("Store", counting), STREAM)
    return counting.bytes_read / 1e3


def pulls(folder: Path) -> Iterator[Figure]:
    """Measure a pull of one new revision, from a history and from one ten times as long."""
    with ExitStack() as stack:
        few, many = (stack.enter_context(pulling(folder, count)) for count in PULLED_FROM)
        ratio, few_ms, many_ms, spread = compare(few, many, rounds=9)
    detail = {f"ms behind {count:,}": ms for count, ms in zip(PULLED_FROM, (few_ms, many_ms), strict=True)}
    yield Figure("pull one new revision, behind so many", ratio, 1 / GROWTH_MAX, detail, spread)


@contextmanager
def pulling(folder: Path, count: int) -> Iterator[Callable[[], float]]:
    """Make two repositories with the same history; give what adds a revision to one, and pulls it into the other."""
    with ExitStack() as stack:
        repositories = []
        for side in ("source", "target"):
            store = stack.enter_context(open_store(folder / f"pull-{side}-{count}"))
            repositories.append(Repository.open(store, STREAM, create=True))
        source, target = repositories
        revisions = 0

        def add(more: int) -> None:
            nonlocal revisions
            source.insert_stream(history(more, files=50, start=revisions))
            revisions += more
            source.set_refs({b"refs/heads/main": Ref(b"r%d" % (revisions - 1))})

        for _ in range(0, count, 1_000):
            add(1_000)
        copy_revisions(source, target)

        def pull() -> float:
            add(1)
            return milliseconds(lambda: copy_revisions(source, target))

        yield pull


def of_history(folder: Path, name: str, git: Path, peer: Breezy | None) -> Iterator[Figure]:
    """Measure what depends on a history."""
    with imported(folder, name, git) as (subject, importing):
        yield from size(subject)
        yield from streams(subject)
        if peer is not None:
            yield from deltas(subject, peer)
            yield from reads(subject, peer)
        yield importing
        yield from from_server(subject)


def main() -> None:
    """Measure and print."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="penstock-bench-", dir=Path.cwd()))
    folder.mkdir(exist_ok=True, parents=True)
    figures: list[Figure] = []
    try:
        with ExitStack() as stack:
            if (reason := breezy_oracle.missing()) is None:
                peer = stack.enter_context(breezy(folder))
            else:
                print(f"without Breezy: {reason}")
                peer = None
            for name, git in git_histories(folder):
                figures += of_history(folder, name, git, peer)
        figures += [*growth(folder), *opening(folder), *pulls(folder)]
        load = os.getloadavg()[0]
        report(f"repositories, with a load of {load:.1f} on {os.cpu_count()} cores", figures)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
