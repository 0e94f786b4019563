"""Placing events again: what did not get into a segment before a scale ended it goes to the segment's successors."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING

from penstock.stream.write._block_plan import plan_blocks
from penstock.stream.write._numbers import numbered_position

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.stream.write._acks import ListRun
    from penstock.stream.write._block_plan import BlockPlan
    from penstock.stream.write._lanes import Lane, Lanes, Load

__all__ = ["place_again"]


def place_again(lanes: Lanes, unsent: Sequence[BlockPlan], more: Sequence[Load], *, numbers_given: bool) -> list[Load]:
    """Return what is to be sent now, by open lanes: ``unsent`` events in the order of their numbers, then ``more``.

    ``more`` was taken from the lanes since; events in it whose segment has ended count as unsent. With
    ``numbers_given`` the caller numbers the events, and those numbers decide where an event without a key goes.
    """
    is_open = set(lanes.open)
    lost = [*unsent, *(plan for lane, plans in more if lane not in is_open for plan in plans)]
    runs: dict[Lane, ListRun] = {}
    for number, event, key, headers, run, index in sorted(
        (entry for plan in lost for entry in plan.entries()), key=itemgetter(0)
    ):
        if numbers_given:
            lane = lanes.at(numbered_position(key, number))
        else:
            lane = (lanes.by_key.get(key) or lanes.route_of(key))[0]
        new = runs.setdefault(lane, lanes.new_run(lane.segment_id))
        run.moved[index] = (new, len(new.events))
        new.add(event, key, headers)
        new.numbers.append(number)
    loads = {lane: plan_blocks(run) for lane, run in runs.items()}
    for plan in (plan for plans in loads.values() for plan in plans):
        plan.last_number = plan.run.numbers[plan.stop - 1]
    for lane, plans in more:
        if lane in is_open:
            loads[lane] = [*loads.get(lane, []), *plans]
    return list(loads.items())
