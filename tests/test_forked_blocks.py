"""A child that was forked inside of ``with`` blocks leaves them in silence; the parent's handles come to no harm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tests.test_forks import run

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.long

BLOCKS: Final = """
penstock.connect(folder).close()
store = penstock.connect(folder, own=own)
store.create_stream("a/b", exist_ok=True)
group = store.create_reader_group("g", ["a/b"])
with store.writer("a/b") as writer:
    writer.write_event(b"first")

def leave(error):
    "Fork inside of all blocks; return how the child ended."
    pid = 0
    try:
        with (
            group.reader("r") as reader,
            store.transactional_writer("a/b", "t") as transactional,
            transactional.begin() as transaction,
            transaction.begin_write_event("k") as inside,
            store.writer("a/b") as writer,
            writer.begin_write_event("k") as output,
        ):
            reader.read_next_event(0)
            inside.write(b"inside")
            output.write(b"output")
            pid = os.fork()
            if not pid and error is not None:
                raise error
    except KeyError:
        assert not pid
    if not pid:
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

assert [leave(None), leave(KeyError()), leave(SystemExit(3))] == [0, 0, 3]
there = sorted(event for batch in store.read("a/b") for event in batch["event"].to_pylist())
assert there == [b"first"] + [b"inside"] * 3 + [b"output"] * 3, there
"""

JOB: Final = """
from penstock.patterns import WorkQueue
store = penstock.connect("memory:")
store.create_stream("a/b")
with store.writer("a/b") as writer:
    writer.write_event(b"first")
queue = WorkQueue(store, "a/b", group="g")

def handle(job):
    pid = os.fork()
    if not pid:
        sys.exit(3)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3

with queue.worker("w") as worker:
    assert (worker.step(handle, 0), worker.step(handle, 0)) == ("done", None)
"""


@pytest.mark.parametrize("own", [True, False])
def test_a_child_leaves_the_blocks_of_its_parent_in_silence(own: bool, tmp_path: Path) -> None:
    """A block that was entered before the fork calls the methods that its handle had then."""
    run(f"own = {own}" + BLOCKS, tmp_path / "store")


def test_a_job_may_fork_a_child_that_exits(tmp_path: Path) -> None:
    """The child leaves the block of the worker; it must end with its own status, and leave the job to the parent."""
    run(JOB, tmp_path)
