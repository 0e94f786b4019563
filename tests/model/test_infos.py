"""What the store tells of its streams: values that cannot be changed."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError

import pytest

from penstock.model import Checkpoint, Lag, SegmentInfo, StreamConfig, StreamCut, StreamInfo


def test_infos_are_frozen_and_can_be_sent_elsewhere() -> None:
    """They are handed to other threads and, with Spark, to other processes."""
    cut = StreamCut.of("a/b", {0: 5})
    info = StreamInfo(
        name="a/b", uid=1, state="active", epoch=1, segments=(SegmentInfo(0, 0.0, 1.0),), config=StreamConfig(),
        events=1, size_bytes=5, head=cut, tail=cut,
    )  # fmt: skip
    for value in (info, Checkpoint("c", "g", (cut,)), Lag(events=2, bytes=5, seconds=1.5)):
        assert pickle.loads(pickle.dumps(value)) == value
        assert hash(value) == hash(pickle.loads(pickle.dumps(value)))
    with pytest.raises(FrozenInstanceError):
        info.epoch = 2  # type: ignore[misc]
