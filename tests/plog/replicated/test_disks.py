"""What an owner remembers of servers whose disk is full or fails: until they take a write, and no longer."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import pytest

from penstock.errors import GroupUnavailable, StoreFenced
from penstock.plog.replicated import Ask, Refusal, ServerAnswer, _disks
from penstock.plog.replicated._disks import RefusingDisks
from penstock.plog.replicated._messages import (
    AppendReplica,
    CreateReplica,
    InspectReplica,
    ReplicaAppended,
    ReplicaDone,
)
from tests.server.apart import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.plog.replicated import Answer, ReplicaRequest, ReplicaSteps

UID: Final = b"u" * 16
FULL: Final = Refusal("disk-full", 0, "no space left on the disk for /secret/path")
GROUPS: Final = {"east": ("a:1", "b:2", "c:3")}


class Owner:
    """Runs what is tried, with one answer to all creations; an error instead of an answer is raised."""

    def __init__(self) -> None:
        self.answer: Answer | Exception = FULL
        self.asked: list[ReplicaRequest] = []
        self.disks = RefusingDisks(GROUPS, self.run)

    def run(self, steps: ReplicaSteps[None]) -> None:
        ask = next(steps)
        while True:
            assert isinstance(ask, Ask)
            self.asked += [request for _, request, _ in ask.requests]
            if isinstance(self.answer, Exception):
                raise self.answer
            try:
                ask = steps.send(self.disks.noted(ask, [ServerAnswer(self.answer)]))
            except StopIteration:
                return


@pytest.fixture
def owner(monkeypatch: pytest.MonkeyPatch) -> Iterator[Owner]:
    monkeypatch.setattr(_disks, "_AGAIN_S", 0.01)
    owner = Owner()
    yield owner
    owner.disks.close()


def test_a_server_that_refuses_a_creation_takes_writes_when_a_creation_succeeds(owner: Owner) -> None:
    """An append to a plog whose space is allocated always succeeds: that says nothing of the space for the next."""
    disks = owner.disks
    disks.note("east", 1, FULL, size=1000)
    assert [disks.reason("east", place) for place in range(3)] == [None, "its disk is full", None]
    disks.note("east", 1, ReplicaAppended(10))
    disks.note("east", 1, FULL)
    disks.note("east", 1, ReplicaAppended(20))
    assert disks.reason("east", 1) == "its disk is full"
    disks.note("east", 1, ReplicaDone(), size=1000)
    assert disks.reason("east", 1) is None


def test_a_server_that_refuses_an_append_takes_writes_when_any_succeeds(owner: Owner) -> None:
    """The text of a disk that fails says more than that it does."""
    disks = owner.disks
    for answer, size in ((ReplicaAppended(10), 0), (ReplicaDone(), 1000)):
        disks.note("east", 0, Refusal("disk-failed", 0, "the disk failed: Input/output error"))
        assert disks.reason("east", 0) == "the disk failed: Input/output error"
        disks.note("east", 0, answer, size=size)
        assert disks.reason("east", 0) is None


def test_only_writes_say_something_of_a_disk(owner: Owner) -> None:
    """Reads, and refusals that have other reasons, come from full disks and from good ones."""
    disks = owner.disks
    disks.note("east", 0, FULL, size=1000)
    requests = tuple((place, InspectReplica(UID), ()) for place in range(3))
    disks.noted(Ask("east", requests), [ServerAnswer(ReplicaDone()), ServerAnswer(FULL), None])
    disks.note("east", 0, Refusal("busy"), size=1000)
    disks.note("east", 2, Refusal("exists"), size=1000)
    writes = ((1, AppendReplica(UID, 0, 1), (b"x",)), (2, CreateReplica(UID, 1000), ()))
    disks.noted(Ask("east", writes), [None, None])
    assert [disks.reason("east", place) for place in range(3)] == ["its disk is full", None, None]
    disks.restarted("east", 0)
    assert disks.reason("east", 0) is None


def test_an_idle_owner_notices_that_a_disk_has_space_again(owner: Owner, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever sends clients by ``/healthz`` sends none to an owner that fails: no write of theirs would end that."""
    caplog.set_level(logging.INFO, "penstock.plogs")
    owner.disks.start()
    owner.disks.note("east", 2, FULL, size=1000)
    eventually(lambda: len(owner.asked) >= 3)
    assert {type(request) for request in owner.asked} == {CreateReplica}
    assert {request.size for request in owner.asked if isinstance(request, CreateReplica)} == {1000}
    owner.answer = GroupUnavailable("east", reason="a mistake of a test")
    eventually(lambda: "cannot be tried again now" in caplog.text)
    owner.answer = RuntimeError("a mistake of ours")
    eventually(lambda: "could not be tried again" in caplog.text)
    owner.answer = ReplicaDone()
    eventually(lambda: owner.disks.reason("east", 2) is None)
    owner.disks.close()
    assert type(owner.asked[-1]).__name__ == "DeleteReplica"
    told = [record.message for record in caplog.records if "c:3" in record.message]
    assert told == [
        "plog server c:3 of group east takes no writes: its disk is full",
        "plog server c:3 of group east takes writes again",
    ]


def test_an_owner_that_was_replaced_tries_nothing(owner: Owner) -> None:
    """Its servers refuse all that it asks for, and another owner uses them."""
    owner.answer = StoreFenced("these plog servers", owner="a newer owner")
    owner.disks.start()
    owner.disks.note("east", 0, FULL, size=1000)
    eventually(lambda: not owner.disks._thread.is_alive())
    assert len(owner.asked) == 1
