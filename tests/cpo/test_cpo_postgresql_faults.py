"""PostgreSQL that loses answers, stops, restarts or hangs: a call does its work once, or says what is unknown."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING, Any

import pytest

from penstock.cpo import Lease, Versioned, _postgresql, open_cpo
from penstock.errors import CpoUnavailable
from penstock.log import MetadataManager, PlogSizes
from penstock.model import PlogId
from penstock.plog import FilePlogs
from penstock.testing import MemoryDisk
from tests.cpo.relay import COMMIT, LOCK, Link, Relay

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import psycopg

    from penstock.cpo import Cpo
    from penstock.cpo._cpo import CpoRows
    from tests.postgres import Postgres

pytestmark = pytest.mark.usefixtures("postgresql")
PLOG_ID = PlogId("main", "g", "0" * 32)


@pytest.fixture
def relay(tmp_path: Path, postgres: Postgres) -> Iterator[Relay]:
    relay = Relay(tmp_path, postgres)
    yield relay
    relay.close()


@pytest.fixture
def cpo(relay: Relay) -> Iterator[Cpo]:
    with open_cpo(relay.url) as cpo:
        yield cpo


CHANGES: dict[str, tuple[Callable[[Cpo], Any], Any]] = {
    "cas": (lambda cpo: cpo.cas("a", b"two", expected=1), 4),
    "delete": (lambda cpo: cpo.delete("a", expected=1), None),
    "acquire": (lambda cpo: cpo.acquire("free", "me", seconds=60).epoch, 1),
    "acquire again": (lambda cpo: cpo.acquire("held", "me", seconds=60).epoch, 2),
    "renew": (lambda cpo: cpo.renew(Lease("held", "me", 1, 0.0), seconds=60).epoch, 1),
    "release": (lambda cpo: cpo.release(Lease("held", "me", 1, 0.0)), None),
    "register_cluster": (lambda cpo: cpo.register_cluster("c", {"g": ["h:1"]}), None),
    "set_metadata_plog": (lambda cpo: cpo.set_metadata_plog("p1", PLOG_ID, expected=0), 4),
}


LOSSES: dict[str, Callable[[Relay], None]] = {
    "lost": lambda relay: relay.lose(COMMIT, arrives=False),
    "unanswered": lambda relay: relay.lose(COMMIT, arrives=True),
    "late": lambda relay: relay.delay(COMMIT, until=LOCK),
}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_made_once_whatever_becomes_of_its_commit(cpo: Cpo, relay: Relay, name: str, loss: str) -> None:
    """Made twice, it would fence the process that made it; reported as failed, it would be made behind its back."""
    cpo.cas("a", b"one", expected=0)
    cpo.acquire("held", "me", seconds=60)
    cpo.set_metadata_plog("p0", PLOG_ID, expected=0)
    change, result = CHANGES[name]
    LOSSES[loss](relay)
    assert change(cpo) == result
    assert cpo.cas("next", b"", expected=0) == 5, "the fourth change was made once"


def test_a_lost_message_before_the_commit_is_sent_again(cpo: Cpo, relay: Relay) -> None:
    """The server rolls back what it has no COMMIT of, so nothing can be done twice."""
    for message in (LOCK, b"UPDATE", b"INSERT"):
        relay.lose(message, arrives=True)
        version = cpo.cas("a", b"one", expected=0)
        relay.lose(message, arrives=True)
        assert cpo.cas("a", b"two", expected=version) == version + 1
        cpo.delete("a", expected=version + 1)


def test_commits_that_never_arrive_are_not_sent_for_ever(
    cpo: Cpo, relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them is found to be rolled back, which is certain, and no reason to go on without end."""
    monkeypatch.setattr(_postgresql, "CALL_S", 0.2)
    relay.lose(COMMIT, arrives=False, times=1000)
    with pytest.raises(CpoUnavailable) as raised:
        cpo.cas("a", b"one", expected=0)
    assert not raised.value.outcome_unknown
    relay.on_message = lambda *_: True
    assert cpo.get("a") is None


def test_a_commit_of_which_nothing_can_be_found_out_is_an_error_that_says_so(
    cpo: Cpo, relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller must read before it tries again; every other error tells it that nothing was changed."""
    monkeypatch.setattr(_postgresql, "CALL_S", 0.1)

    def answer_nothing(sent: bytes, link: Link) -> bool:
        link.is_cut_at_answer = relay.is_down = COMMIT in sent
        return True

    relay.on_message = answer_nothing
    with pytest.raises(CpoUnavailable, match="unknown whether the change was made") as raised:
        cpo.cas("a", b"one", expected=0)
    assert raised.value.outcome_unknown
    with pytest.raises(CpoUnavailable) as raised:
        cpo.cas("a", b"two", expected=0)
    assert not raised.value.outcome_unknown
    relay.is_down, relay.on_message = False, lambda *_: True
    assert cpo.get("a") == Versioned(b"one", 1)


def test_reads_are_repeated(cpo: Cpo, relay: Relay, caplog: pytest.LogCaptureFixture) -> None:
    """A read changes nothing, so a lost connection is no reason to fail; a line in the log says why it took long."""
    cpo.cas("a", b"one", expected=0)
    for message in (b"READ ONLY", b"SELECT penstock_cpo", COMMIT):
        relay.lose(message, arrives=True, times=2)
        assert cpo.get("a") == Versioned(b"one", 1)
    assert caplog.text.count("trying again") == 3, "once for each call"


def test_conflicts_of_transactions_are_repeated(cpo: Cpo, admin: psycopg.Connection) -> None:
    """A deadlock or a serialization failure says that the transaction may be run again."""
    admin.execute("""
        CREATE SEQUENCE failures;
        CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            CASE nextval('failures')
                WHEN 1 THEN RAISE EXCEPTION USING ERRCODE = '40001';
                WHEN 2 THEN RAISE EXCEPTION USING ERRCODE = '40P01';
                ELSE RETURN NULL;
            END CASE;
        END $$;
        CREATE CONSTRAINT TRIGGER fail AFTER INSERT ON penstock_cpo
            DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION fail()""")
    try:
        assert cpo.cas("a", b"one", expected=0) == 1
        assert admin.execute("SELECT last_value FROM failures").fetchone() == (3,)
    finally:
        admin.execute("DROP FUNCTION fail CASCADE; DROP SEQUENCE failures")


def test_a_backend_that_is_stopped_holds_up_one_call(
    cpo: Cpo, admin: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection may be dead without an end, behind a router that forgot it; another one is opened then."""
    monkeypatch.setattr(_postgresql, "ANSWER_S", 0.2)
    [(pid,)] = admin.execute("SELECT pid FROM pg_stat_activity WHERE application_name = 'penstock'")
    os.kill(pid, signal.SIGSTOP)
    try:
        assert cpo.cas("a", b"one", expected=0) == 1
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_server_that_is_stopped_hangs_no_call(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that waits for ever for its lease can neither serve nor say why."""
    monkeypatch.setattr(_postgresql, "CONNECT_S", 2)
    with open_cpo(postgres.url) as cpo:
        monkeypatch.setattr(_postgresql, "ANSWER_S", 0.2)
        monkeypatch.setattr(_postgresql, "CALL_S", 1.0)  # so there is a second attempt, and no third one
        with postgres.stopped():
            with pytest.raises(CpoUnavailable, match="timeout") as raised:
                cpo.cas("a", b"one", expected=0)
            assert not raised.value.outcome_unknown
        monkeypatch.undo()
        assert cpo.cas("a", b"one", expected=0) == 1


def test_an_oracle_goes_on_by_itself_when_postgresql_is_back(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Databases are restarted for every update; nobody should have to restart what uses them."""
    with open_cpo(postgres.url) as cpo:
        lease = cpo.acquire("x", "me", seconds=60)
        postgres.stop()
        with monkeypatch.context() as patch:
            patch.setattr(_postgresql, "CALL_S", 0.1)
            with pytest.raises(CpoUnavailable, match="connection") as raised:
                cpo.renew(lease, seconds=60)
        assert not raised.value.outcome_unknown
        starting = threading.Thread(target=postgres.start)
        starting.start()
        assert cpo.renew(lease, seconds=60).epoch == 1, "the call waits for the server"
        starting.join()


def test_a_postgresql_standby_is_refused_until_it_takes_over(postgres: Postgres) -> None:
    """Its answers may be out of date; after the failover the same address leads to it, and nothing is restarted."""
    with postgres.standby() as standby:
        with pytest.raises(CpoUnavailable, match="read-only"):
            open_cpo(standby.url)
        with open_cpo(f"postgresql://postgres@/postgres?host={standby.folder},{postgres.folder}") as cpo:
            lease = cpo.acquire("x", "me", seconds=60)
            postgres.stop(mode="fast")
            try:
                standby.promote()
                assert cpo.renew(lease, seconds=60).epoch == lease.epoch
                assert cpo.acquire("x", "me", seconds=60).epoch == 2
            finally:
                postgres.start()


def test_a_process_that_is_stopped_inside_a_transaction_does_not_hold_up_all_others(
    postgresql: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the lock, and may never wake up."""
    with open_cpo(postgresql) as one, open_cpo(postgresql) as two:
        begin = _postgresql._BEGIN_WRITE.replace(f"'{_postgresql.IDLE_S}s'", "'500ms'")
        monkeypatch.setattr(_postgresql, "_BEGIN_WRITE", begin)
        inside, woken = threading.Event(), threading.Event()

        def change(rows: CpoRows) -> int:
            inside.set()
            woken.wait()
            return rows.put("kv/a", b"one")

        with ThreadPoolExecutor() as pool:
            stopped = pool.submit(one._change, change)
            inside.wait()
            try:
                assert two.cas("b", b"two", expected=0) == 1
            finally:
                woken.set()
            assert stopped.result() == 2, "its own transaction was rolled back, and run again"


def test_a_partition_goes_on_by_itself_when_postgresql_is_back(
    cpo: Cpo, relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its metadata log may have to switch to a new plog just then, and only the oracle can publish that."""
    disk, small, numbers = MemoryDisk(), PlogSizes(first=256, largest=256), iter(range(1000))
    with FilePlogs(disk) as plogs, MetadataManager.open(plogs, cpo, "p0", sizes=small) as manager:

        def append(times: int) -> None:
            for number in islice(numbers, times):
                manager.log(f"log-{number}").append(b"one")

        relay.lose(COMMIT, arrives=True, times=3)
        append(20)
        relay.go_down()
        monkeypatch.setattr(_postgresql, "CALL_S", 0.05)
        with pytest.raises(CpoUnavailable):
            append(1000)
        failed = next(numbers) - 1
        relay.is_down = False
        monkeypatch.undo()
        append(20)
    with FilePlogs(disk) as plogs, MetadataManager.open(plogs, cpo, "p0", sizes=small) as manager:
        names = [f"log-{number}" for number in range(next(numbers)) if number not in (failed, failed + 1)]
        assert {manager.log(name).length for name in names} == {3}
