"""Repositories whose processes are killed, and what they take while they work: all of it in real processes."""

from __future__ import annotations

import random
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import penstock
from penstock.repo import Everything, Repository
from penstock.repo.git import import_git
from tests.repo.git_history import LINES, History, plain
from tests.repo.streams import contents

if TYPE_CHECKING:
    from pathlib import Path

KILLS: Final = 3
COMMITS: Final = 40

IMPORTER: Final = """
import sys
import penstock
from penstock.repo import Repository, _git_import
from penstock.repo.git import import_git
_git_import._BATCH_REVISIONS = 2
_, folder, source = sys.argv
with penstock.connect(folder) as store:
    repository = Repository.open(store, "code/x", create=True)
    import_git(source, repository, on_progress=lambda done, total: print(done, total, flush=True))
"""

MEMORY: Final = """
import sys
from pathlib import Path
import penstock
from penstock.repo import TEXTS, TOPOLOGICAL, UNORDERED, ContentFactory, Everything
from penstock.repo import Record, Repository, RepositoryStream

def grown(work):
    "Return by how many MiB the process grows at most while it does this work."
    Path("/proc/self/clear_refs").write_text("5")
    def peak():
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) >> 10
    before = peak()
    work()
    return peak() - before

def texts():
    for number in range(count):
        text = (b"%08d" % number) * (size >> 3)
        yield Record((TEXTS, b"file-%d" % number), iter([ContentFactory((b"r1",), (), text)]))

def read(ordering):
    for record in repository.get_repository_stream(Everything(), ordering).iter_contents():
        for factory in record.entries:
            assert len(factory.get_bytes_as(factory.storage_kind)) == size

count, size = int(sys.argv[2]), int(sys.argv[3])
with penstock.connect(sys.argv[1], exclusive=True) as store:
    repository = Repository.open(store, "code/x", create=True)
    print(grown(lambda: repository.insert_stream(RepositoryStream(texts()))))
    repository = Repository.open(store, "code/x")
    print(grown(lambda: read(UNORDERED)), grown(lambda: read(TOPOLOGICAL)))
    repository = Repository.open(store, "code/x")
    print(grown(lambda: print(repository.check().is_good)))
"""


def memory(folder: Path, *, count: int, size: int) -> tuple[int, int, int]:
    """Return what an insert, streams and a check take at most, in MiB, in a process of their own."""
    command = [sys.executable, "-c", MEMORY, str(folder), str(count), str(size)]
    inserted, unordered, topological, is_good, checked = subprocess.check_output(command, text=True).split()
    assert is_good == "True"
    return int(inserted), max(int(unordered), int(topological)), int(checked)


def test_import_that_is_killed_at_any_moment_goes_on(tmp_path: Path) -> None:
    """After kill -9 nothing is half there: the import goes on behind what was stored, and the end is the same."""
    history = History()
    for number in range(COMMITS):
        parents = [number] if number else []
        history.commit(parents, {b"f%d" % (number % 7): plain(LINES + b"%d\n" % number)})
    history.name(b"refs/heads/main", history.count)
    source = history.write(tmp_path / "source")
    chance, done = random.Random(18), 0
    for _ in range(KILLS):
        command = [sys.executable, "-c", IMPORTER, str(tmp_path / "data"), str(source)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(chance.randrange(2, 12))]
            process.kill()  # it is behind that commit by now
        read, left = map(int, lines[-1].split())
        assert left <= COMMITS - done, "what was stored is not imported again"
        done = COMMITS - left + read // 2 * 2  # of a batch all is stored, or nothing
    with penstock.connect(tmp_path / "data") as store:
        killed = Repository.open(store, "code/x")
        assert killed.refs() == {}
        assert killed.check().is_good
        assert len(list(killed.revisions())) >= done
        import_git(source, killed)
        whole = Repository.open(store, "code/whole", create=True)
        import_git(source, whole)
        everything = [repo.get_repository_stream(Everything(), complete_inventory=True) for repo in (killed, whole)]
        assert contents(everything[0]) == contents(everything[1])
        assert killed.check().is_good


def test_line_of_100_megabytes_takes_a_few_times_its_size(tmp_path: Path) -> None:
    """A text is in memory as a whole, and little else: one large file does not need a large machine."""
    assert max(memory(tmp_path / "data", count=1, size=100 << 20)) < 420


def test_memory_does_not_grow_with_what_is_streamed(tmp_path: Path) -> None:
    """All of 320 MiB is inserted, streamed and checked in less, as the system counts it; a stream takes least."""
    inserted, streamed, checked = memory(tmp_path / "data", count=80, size=4 << 20)
    assert inserted < 220
    assert streamed < 130
    assert checked < 280
