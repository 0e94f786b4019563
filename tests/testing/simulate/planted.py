"""Deliberate mistakes in the protocols of replication, and the first seed whose life shows each.

A mistake is an edit of the source of one function or of several. It replaces the function's code while it is planted,
so that all that call it make the mistake. An edit whose text is no longer in the source fails: the list stays true.
A change of the protocols, or of the simulator, gives every seed another life; :mod:`first_seeds` finds the seeds again.
"""

from __future__ import annotations

import inspect
import textwrap
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from penstock.log import _protocols
from penstock.plog.replicated import AppendWindow, OwnedPlogs, ReplicaHost, _damage, _decide, _repair
from penstock.plog.replicated._reassembly import EarlyAppends
from penstock.plog.server import Scrubber
from penstock.testing.simulate import Violation, run_life
from penstock.testing.simulate._oracle import SimOracle

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["MISTAKES", "Mistake", "first_seed", "planted"]


@dataclass(frozen=True)
class Mistake:
    """A mistake, the first seed that shows it, and its edits: functions, each with a text and what replaces it."""

    name: str
    seed: int
    edits: tuple[tuple[Any, str, str], ...]


@contextmanager
def planted(mistake: Mistake) -> Iterator[None]:
    """Make the mistake within the block."""
    saved = []
    try:
        for function, old, new in mistake.edits:
            source = textwrap.dedent(inspect.getsource(function))
            assert source.count(old) == 1, f"{mistake.name}: {old!r} is not once in {function.__qualname__}"
            names: dict[str, Any] = {}
            code = compile("from __future__ import annotations\n" + source.replace(old, new), "planted", "exec")
            exec(code, function.__globals__, names)
            saved.append((function, function.__code__))
            function.__code__ = names[function.__name__].__code__
        yield
    finally:
        for function, code in saved:
            function.__code__ = code


def first_seed(mistake: Mistake, seeds: Iterable[int]) -> int | None:
    """Return the first seed whose life shows the mistake; None if none of them does."""
    with planted(mistake):
        for seed in seeds:
            try:
                run_life(seed)
            except Violation:
                return seed
    return None


_append, _change, _fence = ReplicaHost._append, ReplicaHost._change, ReplicaHost._fence

MISTAKES: Final = [
    Mistake("no session is fenced", 0, ((ReplicaHost._not_current, "if session is self._session:", "if True:"),)),
    Mistake("the fence is in memory only", 1661, ((_fence, "if self._saved != (epoch, owner):", "if False:"),)),
    Mistake(
        "an acknowledgement leaves after the fence",
        0,
        (
            (
                _append,
                "        self._done(uid, last)\n    return self._not_current(session) or ",
                "        self._done(uid, last)\n    return ",
            ),
        ),
    ),
    Mistake("an append is acknowledged before its sync", 0, ((_append, "yield last.result", "yield lambda: None"),)),
    Mistake(
        "an append is acknowledged after two",
        0,
        ((AppendWindow._commit, "min(self._acked)", "sorted(self._acked)[1]"),),
    ),
    Mistake(
        "an early append is taken for acknowledged",
        0,
        (
            (
                AppendWindow.answered,
                "pass  # it is ack",
                "self._acked[server] = self.written; self._commit()  # it is ack",
            ),
        ),
    ),
    Mistake(
        "a plog is sealed at the longest replica, which nobody has read",
        9425,
        (
            (
                _decide._left_length,
                "return min(certain)",
                "return max(state.length for state in replicas.present.values())",
            ),
            (_decide._find_left_length, "len(reaching) > 1", "reaching"),
        ),
    ),
    Mistake(
        "an owner keeps what was not acknowledged",
        6,
        ((OwnedPlogs.seal, "None if window is None else window.committed", "None"),),
    ),
    Mistake(
        "a replica counts that may have lost its end",
        6,
        ((_decide._left_length, "if state.certain]", "]"),),
    ),
    Mistake(
        "a request waits for one behind it",
        99,
        ((ReplicaHost._drain, "self._done(uid, last)", "pass"),),
    ),
    Mistake("an owner before writes rows", 25, ((SimOracle.write_row, "self.check_lease(epoch)", "pass"),)),
    Mistake(
        "a missing replica counts as an empty one",
        0,
        (
            (
                _decide.inspect_replicas,
                "replicas.missing.add(server)",
                "replicas.present[server] = ReplicaState(0, sealed=False, size=120, certain=True)",
            ),
        ),
    ),
    Mistake(
        "a plog is gone if one server has none",
        1,
        ((_decide.decide_length, "len(replicas.missing) == REPLICAS", "replicas.missing"),),
    ),
    Mistake(
        "the pre-allocated plog is forgotten",
        3,
        ((_protocols._recover_next, "if not fence and not info.sealed and not info.length:", "if True:"),),
    ),
    Mistake(
        "an epoch is used twice",
        0,
        (
            (SimOracle.acquire, "self.epoch += 1", "self.epoch += not self.epoch"),
            (_fence, "or (epoch == self._epoch and owner != self._owner)", ""),
        ),
    ),
    Mistake(
        "an early append is applied over a gap",
        0,
        ((EarlyAppends.take, "if run.start == offset:", "if run.start >= offset:"),),
    ),
    Mistake(
        "a change overtakes one under way",
        295,
        ((_change, "if request.uid in self._changing:", "if False:"),),
    ),
    Mistake(
        "a short replica is sealed where it ends",
        3,
        (
            (ReplicaHost._seal, "if info.length < request.length and not info.sealed:", "if False:"),
            (_decide.seal_replicas, "not state.sealed and state.length >= length", "not state.sealed"),
        ),
    ),
    Mistake(
        "repair takes any replica for a good one",
        3,
        ((_repair.repair_plog, "good = yield from seal_replicas(plog_id, length, present)", "good = set(present)"),),
    ),
    Mistake("repair copies from a damaged replica", 34, ((_repair.repair_plog, " if server not in damaged}", "}"),)),
    Mistake(
        "a deletion forgets the server that is away",
        4,
        ((_decide.delete_plog, "yield WriteRow(plog_id, SealRow(None), 0)", "pass"),),
    ),
    Mistake(
        "the row goes before all replicas are well, and no list finds it",
        77,
        (
            (_repair.repair_plog, "if len(good) == REPLICAS:", "if good:"),
            (_repair.list_replicas, " if is_sealed or not any(places.values())", ""),
        ),
    ),
    Mistake(
        "a decision removes the row before all replicas are sealed, and no list finds it",
        6,
        (
            (_decide.decide_length, "is_well=len(sealed) == REPLICAS", "is_well=True"),
            (_repair.list_replicas, " if is_sealed or not any(places.values())", ""),
        ),
    ),
    Mistake(
        "reads go beyond the committed offset",
        36,
        ((OwnedPlogs.info, "PlogInfo(window.committed", "PlogInfo(window.written"),),
    ),
    Mistake(
        "a replica that is not sealed is read for recovery",
        3,
        ((_decide._agreed_length, "if state.sealed:", "if state.length:"),),
    ),
    Mistake(
        "the scrub lists what was mended before a restart",
        302,
        (
            (
                Scrubber._run_of,
                "[plog_id for plog_id in stored if not self._check(partition, plog_id)]",
                "replicas.damaged.update(map(bytes.fromhex, run.damaged)) or []",
            ),
        ),
    ),
    Mistake(
        "the next run of the scrub begins where the last one ended",
        49,
        ((Scrubber._scrub_if_due, 'run.begun, run.after, run.is_done = now, "", False', "run.is_done = False"),),
    ),
    Mistake(
        "the owner asks two servers for damage",
        109,
        ((_damage.list_damaged, "for server in range(REPLICAS)", "for server in range(REPLICAS - 1)"),),
    ),
    Mistake(
        "a length counts that only a damaged replica has",
        301052,
        ((_decide._find_left_length, "len(reaching) > 1", "reaching"),),
    ),
    Mistake(
        "an open replica counts beside sealed ones",
        507678,
        ((_repair.list_replicas, " if is_sealed or not any(places.values())", ""),),
    ),
]
