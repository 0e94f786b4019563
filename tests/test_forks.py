"""What a process has open is of no use to a child that is forked from it, and comes to no harm by it.

All of it in real processes, because pytest's own is no place to fork.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Final

import pytest

import penstock
from penstock.errors import DiskFailed, ForkedHandle, ForkedNetwork

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.long

SECONDS_MAX: Final = 120

COMMON: Final = """
import gc, multiprocessing, os, signal, sys, threading, time, warnings
import penstock
from penstock.errors import ForkedHandle, ForkedNetwork
warnings.simplefilter("ignore", DeprecationWarning)  # about forking while threads run, which is the subject
folder = sys.argv[1]

def forked(task, exits=os._exit):
    "Run a task in a child; return how it ended. One that hangs is killed."
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    signal.alarm(60)
    try:
        task()
    except BaseException as error:
        print(f"child: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os._exit(1)
    exits(0)

def refuses(call, number=0):
    try:
        call()
    except ForkedHandle:
        return
    raise AssertionError(f"call {number} was not refused")
"""


def run(script: str, *args: object) -> str:
    """Run a script, and return what it printed."""
    ended = subprocess.run(
        [sys.executable, "-c", COMMON + script, *map(str, args)],
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS_MAX,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip()


def start(script: str, *args: object) -> subprocess.Popen[str]:
    """Start a script, and return it when it has printed a line."""
    command = [sys.executable, "-c", COMMON + script, *map(str, args)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline()
    return process


EVERYTHING: Final = """
store = penstock.connect(folder)
store.create_stream("a/b", segments=2, exist_ok=True)
writer, busy = store.writer("a/b", "w"), store.writer("a/b")
pointer = writer.write_event(b"first").result()
writer.write_event(b"waits")
group = store.create_reader_group("g", ["a/b"])
reader = group.reader("r")
transactional = store.transactional_writer("a/b", "t")
transaction, output = transactional.begin(), writer.begin_write_event("k")
transaction.write_event(b"in a transaction")
inside = transaction.begin_write_event("k")
bounded = store.read("a/b")
next(bounded)
asked = [
    lambda: store.streams(), lambda: store.create_stream("c/d"), lambda: store.tail("a/b"), lambda: store.writer("a/b"),
    lambda: list(store.read("a/b")), lambda: store.fetch_event(pointer), lambda: store.maintain(),
    lambda: writer.write_event(b"x"), lambda: writer.write_batch([b"x"]), lambda: writer.flush(),
    lambda: writer.last_number, lambda: writer.__enter__(), lambda: writer.begin_write_event("k"),
    lambda: group.reader("other"), lambda: group.lag(), lambda: group.streams, lambda: group.readers(),
    lambda: ack_refuses(), lambda: reader.read_next_event(0), lambda: reader.read_batch(),
    lambda: transactional.begin(), lambda: transaction.write_event(b"x"), lambda: transaction.commit(),
    lambda: transaction.status, lambda: output.write(b"x"), lambda: output.abort(), lambda: inside.write(b"x"),
]
closed = [output, inside, transactional, reader, writer, busy, store]
acknowledged, over = [], threading.Event()

def ack_refuses():
    "Ask an acknowledgement: only one that came before the fork answers."
    if not ack._run.done:
        refuses(lambda: ack.add_done_callback(print))
        refuses(ack.done)
    writer.flush()

def work():
    while not over.is_set():
        name = f"{threading.get_ident()}-{len(acknowledged)}".encode()
        busy.write_event(name).result()
        acknowledged.append(name)
        store.tail("a/b")

def use():
    for number, ask in enumerate(asked):
        refuses(ask, number)
    for handle in closed:
        handle.close()
    with_blocks.__exit__(None, None, None)
    handles.clear()
    gc.collect()

with_blocks, handles = transaction, dict(globals())
threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads:
    thread.start()
for number in range(2):
    ack = writer.write_event(b"waits")
    status = forked(use, exits=sys.exit if number % 2 else os._exit)
    assert status == 0, status
over.set()
for thread in threads:
    thread.join()
inside.close()
transaction.commit()
output.write(b"large or not")
for handle in closed:
    handle.close()
with penstock.connect(folder) as store:
    there = {event for batch in store.read("a/b") for event in batch["event"].to_pylist()}
assert there >= {b"first", b"waits", b"in a transaction", b"large or not", *acknowledged}, "acknowledged, and not there"
print(len(acknowledged))
"""


@pytest.mark.parametrize("kind", ["owned", "served"])
def test_a_childs_handles_refuse_and_closing_them_does_nothing_while_threads_of_the_parent_write(
    kind: str, tmp_path: Path
) -> None:
    """Two processes that write the same files destroy them; locks of threads that are not there are never released."""
    owner = start("store = penstock.connect(folder); print(flush=True); sys.stdin.read()", tmp_path / "store")
    if kind == "owned":
        owner.communicate()
    assert int(run(EVERYTHING, tmp_path / "store")) > 0
    owner.communicate()


def test_plogs_logs_oracles_and_stores_in_memory_refuse_too(tmp_path: Path) -> None:
    """Each of them would write to what it shares with its parent, or keep to itself what it acknowledges."""
    run(
        """
from penstock.cpo import open_cpo
from penstock.log import MetadataManager
from penstock.plog import open_plogs

for address in ("memory:", None):
    plogs, cpo = open_plogs(address or f"file:{folder}/plogs"), open_cpo(address or f"sqlite:{folder}/cpo.db")
    manager = MetadataManager.open(plogs, cpo, "p0")
    log = manager.log("wal")
    log.append(b"x")
    plog, length, _ = log.plogs()[0]
    store = penstock.connect("memory:")

    def use():
        refuses(lambda: plogs.append(plog, length, b"y"))
        refuses(lambda: plogs.read(plog, 0, 1))
        refuses(lambda: log.append(b"y"))
        refuses(lambda: manager.log("other"))
        refuses(lambda: cpo.get("key"))
        refuses(lambda: store.create_stream("a/b"))
        for handle in (store, manager, cpo, plogs):
            handle.close()
        gc.collect()

    assert forked(use, exits=sys.exit) == 0
    log.append(b"z")
    cpo.cas("key", b"value", expected=0)
    for handle in (store, manager, cpo, plogs):
        handle.close()
""",
        tmp_path,
    )


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_pool_writes_what_it_acknowledges_by_stores_of_its_own(method: str, tmp_path: Path) -> None:
    """Of 2,000 acknowledged events, a pool that used its parent's store lost 2,000."""
    module = tmp_path / "pooled.py"
    module.write_text(
        COMMON
        + """
def begin(stores=[]):
    stores.append(penstock.connect(sys.argv[1]))
    global writer
    writer = stores[0].writer("a/b")

def write(number):
    return str(writer.write_event(str(number).encode()).result())

def main():
    store = penstock.connect(folder)
    store.create_stream("a/b")
    with multiprocessing.get_context(sys.argv[2]).Pool(2, begin) as pool:
        assert len(set(pool.map(write, range(100)))) == 100
    found = sorted(int(event) for batch in store.read("a/b") for event in batch["event"].to_pylist())
    assert found == list(range(100)), found
    store.close()

if __name__ == "__main__":
    main()
"""
    )
    command = [sys.executable, str(module), str(tmp_path / "store"), method]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS_MAX)
    assert ended.returncode == 0, ended.stderr


def test_a_pool_that_uses_its_parents_store_is_told_so(tmp_path: Path) -> None:
    """A caller that does the obvious learns at the first event what to do instead."""
    told = run(
        """
store = penstock.connect(folder)
store.create_stream("a/b")
writer = store.writer("a/b")

def write(number):
    writer.write_event(str(number).encode()).result()

try:
    with multiprocessing.get_context("fork").Pool(2) as pool:
        pool.map(write, range(100))
except ForkedHandle as error:
    print(error)
writer.write_event(b"of the parent").result()
store.close()
with penstock.connect(folder) as store:
    assert [event for batch in store.read("a/b") for event in batch["event"].to_pylist()] == [b"of the parent"]
""",
        tmp_path,
    )
    assert "open the store again in this process" in told


def test_workers_that_were_forked_first_are_replaced_when_they_are_killed(tmp_path: Path) -> None:
    """This is how gunicorn runs an application: a master that uses nothing, and workers of which any may own."""
    run(
        """
def work(number):
    with penstock.connect(folder) as store:
        store.create_stream("a/b", exist_ok=True)
        writer = store.writer("a/b", f"worker-{number}")
        while (writer.last_number or 0) < 20:
            writer.write_event(f"{number}".encode()).result()
            if number < 1 and writer.last_number == 10:
                os.kill(os.getpid(), signal.SIGKILL)

workers = {}
for number in range(3):
    pid = os.fork()
    if not pid:
        signal.alarm(100)
        os._exit(work(number) or 0)
    workers[pid] = number
while workers:
    pid, status = os.wait()
    number = workers.pop(pid)
    assert status in (0, signal.SIGKILL), status
    if status:
        pid = os.fork()
        if not pid:
            signal.alarm(100)
            os._exit(work(number + 10) or 0)
        workers[pid] = number + 10
with penstock.connect(folder) as store:
    found = [int(event) for batch in store.read("a/b") for event in batch["event"].to_pylist()]
assert {number: found.count(number) for number in set(found)} == {0: 11, 1: 21, 2: 21, 10: 21}, found
""",
        tmp_path,
    )


def test_a_child_of_a_process_that_used_a_bucket_is_told_that_it_cannot_open_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There obstore would hang for ever: its threads are the parent's."""
    keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "c", "AWS_ALLOW_HTTP": "true"}
    for name, value in {**keys, "AWS_ENDPOINT_URL": "http://127.0.0.1:1"}.items():
        monkeypatch.setenv(name, value)
    run(
        """
from penstock.errors import StorageUnavailable
from penstock.ports import Bucket

def put():
    try:
        Bucket(folder).put_new("object", b"")
    except StorageUnavailable:  # nothing listens there
        pass

def put_in_child():
    try:
        put()
    except ForkedNetwork:
        return
    raise AssertionError("it was not refused")

assert forked(put) == 0
put()
assert forked(put_in_child) == 0
""",
        "s3://bucket/prefix",
    )


def test_a_child_of_a_process_that_serves_others_is_told_that_it_cannot_connect(tmp_path: Path) -> None:
    """There gRPC would hang for ever, and would disturb that of the parent."""
    run(
        """
store = penstock.connect(folder)
store.create_stream("a/b")
client = "import penstock, sys; penstock.connect(sys.argv[1]).close()"
assert os.spawnv(os.P_WAIT, sys.executable, [sys.executable, "-c", client, folder]) == 0

def connect():
    try:
        penstock.connect(folder)
    except ForkedNetwork:
        pass
    else:
        raise AssertionError("it connected")
    with penstock.connect(folder + "-other") as other:  # which needs no other process
        other.create_stream("a/b")

assert forked(connect, exits=sys.exit) == 0
assert os.spawnv(os.P_WAIT, sys.executable, [sys.executable, "-c", client, folder]) == 0
store.close()
assert forked(lambda: penstock.connect(folder).close()) == 0
""",
        tmp_path / "store",
    )


@pytest.mark.parametrize("child", ["forks", "execs"])
def test_a_folder_is_free_when_its_owner_is_killed_whatever_became_of_its_children(child: str, tmp_path: Path) -> None:
    """A lock, and the connection of a client, end with the last process that has them open."""
    owner = start(
        """
store = penstock.connect(folder)
store.create_stream("a/b")
print(flush=True)
sys.stdin.readline()
pid = os.fork()
if not pid:
    os.close(1)
    if sys.argv[2] == "execs":
        os.execv("/bin/sleep", ["sleep", "60"])
    time.sleep(60)
print(pid, flush=True)
time.sleep(60)
""",
        tmp_path / "store",
        child,
    )
    client = penstock.connect(tmp_path / "store")
    writer = client.writer("a/b")
    writer.write_event(b"before").result()
    assert owner.stdin is not None
    assert owner.stdout is not None
    owner.stdin.write("\n")
    owner.stdin.flush()
    pid = int(owner.stdout.readline())
    try:
        owner.kill()
        owner.wait()
        begun = time.monotonic()
        writer.write_event(b"behind").result()
        assert time.monotonic() - begun < 5.0, "the child kept it waiting"
        client.close()
        with penstock.connect(tmp_path / "store", exclusive=True) as store:
            assert [event for batch in store.read("a/b") for event in batch["event"].to_pylist()] == [
                b"before",
                b"behind",
            ]
    finally:
        os.kill(pid, signal.SIGKILL)
        owner.communicate()


def test_errors_survive_the_way_out_of_a_pool() -> None:
    """One that cannot be made anew from what was pickled leaves the pool waiting for ever."""
    network = ForkedNetwork(ran="gRPC", lost="a store")
    for error in (ForkedHandle("StreamWriter", owner=7), DiskFailed("x", reason="y", stopped=True), network):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


def test_repository_of_the_parent_is_refused_and_comes_to_no_harm(tmp_path: Path) -> None:
    """Another thread may have its lock at the moment of the fork, and the child would wait for it for ever."""
    script = """
from penstock.repo import Everything, Repository, TEXTS
from tests.repo.streams import history, keys
with penstock.connect(folder, exclusive=True) as store:
    repository = Repository.open(store, "code/x", create=True)
    repository.insert_stream(history(3))
    key = TEXTS, b"file-0", b"r0"
    held, done = threading.Event(), threading.Event()
    def hold():
        with repository._lock, repository._cache_lock:
            held.set()
            done.wait()
    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    calls = [
        lambda: repository.refresh(),
        lambda: repository.check(),
        lambda: repository.text(key),
        lambda: key in repository,
        lambda: repository.insert_stream(history(1, start=3)),
    ]
    def each_is_refused():
        for number, call in enumerate(calls):
            refuses(call, number)
    print(forked(each_is_refused))
    done.set()
    thread.join()
    repository.insert_stream(history(2, start=3))
    print(repository.check().items, len(keys(repository.get_repository_stream(Everything()))))
"""
    assert run(script, tmp_path / "data").split() == ["0", "15", "15"]
