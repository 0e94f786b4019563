"""The descriptions of the operations: what they accept, and how they refuse the rest."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from msgspec.structs import astuple

from penstock.errors import BadArgument
from penstock.model import Checkpoint, Position, StreamCut
from penstock.server._operations import HANDLERS
from penstock.wire import operations, pack, unpack_call
from penstock.wire.operations import (
    OPERATIONS,
    _operation,
    groups,
    readers,
    repositories,
    sessions,
    streams,
    transactions,
    writers,
)
from tests.server.samples import legal_call

CUT = StreamCut.of("a/b", {0: 7})


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_legal_call_arrives_as_it_was_made(name: str) -> None:
    """The client and the server read the same description, whatever the way."""
    call = legal_call(OPERATIONS[name])
    assert operations.parse(name, unpack_call(pack(astuple(call)))) == call


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_long_call_has_the_form_of_its_operation(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever else comes is not read at all: maps whose keys collide, or lists that take a gigabyte."""
    monkeypatch.setattr(_operation, "SHORT_SIZE", 0)
    call = list(astuple(legal_call(OPERATIONS[name])))
    operations.check_form(name, pack(["session", call]))
    operations.check_form(name, pack(["session", unpack_call(pack(call))]))
    wrong: list[Any] = [[{(1, 2): 3}, *call[1:]], [*call, {}], {}, [[{}] * 100, *call[1:]]]
    for args in wrong:
        with pytest.raises(BadArgument, match=r"^invalid "):
            operations.check_form(name, msgspec.msgpack.encode(["session", args], enc_hook=lambda _: None))


@pytest.mark.parametrize("place", [None, 5, "head", "tail", CUT, [CUT], Checkpoint("c", "g", (CUT,)), Position((CUT,))])
def test_a_group_starts_at_any_place(place: Any) -> None:  # noqa: ANN401 - each is one
    """They are of several classes, among which msgspec cannot choose."""
    call = groups.CreateGroup("g", ["a/b"] * 5_000, place, None, False)
    operations.check_form(call.operation, pack(["session", list(astuple(call))]))
    assert operations.parse(call.operation, unpack_call(pack(astuple(call)))) == call


@pytest.mark.parametrize(
    ("call", "refusal"),
    [
        (streams.CreateStream("a/b", True, None, False), "invalid segments True of create_stream: use a whole number"),
        (streams.Head(7), "invalid name 7 of head: use a stream name of the form scope/name"),  # type: ignore[arg-type]
        (streams.Head("x" * 512), "invalid name 'x*'?[.]{3} of head: use a stream name"),
        (streams.Scale("a/b", [0], [(math.nan, 1.0)]), r"invalid ranges .* of scale_stream: use pairs like \(0.0, 0.5"),
        (groups.Reset("g", "noon"), "invalid to 'noon' of group.reset: use a Checkpoint"),  # type: ignore[arg-type]
        (
            readers.RecordPlaces(1, [("a/b", 0, -5)], True),
            "invalid places .* of reader.record: use a list of",
        ),
        (writers.Mark(1, 1 << 50), "invalid time 1125899906842624 of writer.mark: use whole milliseconds from 0"),
        (transactions.BeginTransaction("a/b", 1, None, math.inf), "invalid lease inf of transactions.begin: use"),
        (sessions.BeginSession(1, 5), "invalid before 5 of session: use .* or None"),  # type: ignore[arg-type]
    ],
)
def test_a_refusal_names_the_operation_and_the_argument(call: operations.Operation, refusal: str) -> None:
    """A user looks for the mistake in the own program, and needs to know where."""
    with pytest.raises(BadArgument, match=refusal):
        operations.parse(call.operation, unpack_call(pack(astuple(call))))


@pytest.mark.parametrize("args", [[], ["a/b", "c/d"], "a/b", None, {"name": "a/b"}])
def test_other_arguments_than_there_are_make_no_call(args: object) -> None:
    """Another version may have more of them, and mean something else."""
    with pytest.raises(BadArgument, match="invalid arguments of head: it takes name"):
        operations.parse("head", args)
    with pytest.raises(BadArgument, match="there is no operation 'tale'"):
        operations.parse("tale", ["a/b"])


def test_every_action_has_a_handler() -> None:
    """What is described can be called, and nothing else."""
    puts = {writers.AppendBlocks, writers.AppendShared}
    gets = {streams.GetBlocks, repositories.GetRepositoryStream}
    other_ways = {*gets, *puts, sessions.BeginSession, sessions.End, sessions.Here}
    assert HANDLERS.keys() == set(OPERATIONS.values()) - other_ways


def test_what_changes_something_each_time_is_not_repeated() -> None:
    """After a lost answer the client cannot know whether it was done."""
    assert not streams.CreateStream("a/b", 1, None, False).may_repeat
    assert streams.CreateStream("a/b", 1, None, True).may_repeat
    assert transactions.CommitAll("a/b", 1, "w", [], 0, None).may_repeat
    once = {name for name, kind in OPERATIONS.items() if not legal_call(kind).may_repeat}
    assert once == {
        "append",
        "append.shared",
        "create_reader_group",
        "create_stream",
        "delete_stream",
        "group.checkpoint",
        "group.delete",
        "group.reader_offline",
        "group.reset",
        "large.commit",
        "large.write",
        "scale_stream",
        "take_snapshot",
        "transaction.batch",
        "transaction.chunk",
        "transaction.commit",
        "transaction.drop",
        "transaction.end",
        "transaction.event",
        "transaction.write",
        "transactions.begin",
        "transactions.commit_all",
        "truncate_stream",
    }


def test_few_operations_are_made_without_a_check_of_their_permission() -> None:
    """Each filters its answer, checks by itself, or closes what is open, and moves nothing that its user may not."""
    unchecked = {name for name, kind in OPERATIONS.items() if kind.about == "unchecked"}
    lists, ends = {"overview", "streams", "reader_groups"}, {"access.end", "reader.leave", "writer.close"}
    assert unchecked == lists | ends | {"session", "end", "here", "append.shared"}
