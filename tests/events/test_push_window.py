"""How far a receiver has taken all groups, whatever the order of its answers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.events._push import Window


@given(st.data())
def test_position_is_the_end_of_what_was_taken_without_a_gap(data: st.DataObject) -> None:
    """An answer to a later group must not count for an earlier one, which may have to be sent again."""
    window, ends, groups, taken = Window(0), list[int](), list[list[int]](), set[int]()
    for step in data.draw(st.lists(st.sampled_from(["send", "skip", "take"]), max_size=30)):
        if step == "send":
            ends.append(10 * (len(ends) + 1))
            number, group = window.add(ends[-1])
            assert number == len(groups)
            groups.append(group)
            group_index = len(ends) - 1
            group.append(group_index)
        elif step == "skip":
            ends.append(10 * (len(ends) + 1))
            taken.add(len(ends) - 1)
            window.skip(ends[-1])
        elif any(not group[1] for group in groups):
            group = data.draw(st.sampled_from([group for group in groups if not group[1]]))
            taken.add(group[2])
            window.take(group)
        complete = next((index for index in range(len(ends)) if index not in taken), len(ends))
        assert window.position == (ends[complete - 1] if complete else 0)
