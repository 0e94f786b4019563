"""Plogs against a model: whatever the order of calls, they do what bytes in a dict would."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.errors import NoSuchPlog, PlogExists, PlogFull, PlogSealed, ReadOutOfRange, WrongOffset
from penstock.plog import FilePlogs, PlogId
from penstock.ports import OsDisk
from penstock.testing import MemoryDisk
from tests.sampling import examples

if TYPE_CHECKING:
    from penstock.plog import PendingAppend, Plogs
    from penstock.ports import Disk

IDS: Final = [PlogId("local", "main", f"{number:032x}") for number in range(4)]
JOURNAL_SIZE: Final = 2048  # a few appends
DIRECT_SIZE_MIN: Final = 300

plog_ids = st.sampled_from(IDS)
sizes = st.one_of(st.integers(1, 60), st.integers(200, 500))


@dataclass
class Model:
    """What a plog holds: everything written, of which at least ``acked`` bytes are durable."""

    size: int
    data: bytes = b""
    acked: int = 0
    sealed: bool = False
    pending: list[tuple[PendingAppend, int]] = field(default_factory=list)


class PlogMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.models: dict[PlogId, Model] = {}
        self.count = 0
        self.disk = self.make_disk()
        self.plogs = self.open()

    def make_disk(self) -> Disk:
        return MemoryDisk()

    def same_disk(self) -> Disk:
        return self.disk

    def open(self) -> Plogs:
        return FilePlogs(self.same_disk(), journal_size=JOURNAL_SIZE, direct_size_min=DIRECT_SIZE_MIN, open_files_max=2)

    def fresh(self, size: int) -> bytes:
        """Bytes that no other append has."""
        self.count += 1
        return (self.count.to_bytes(4, "big") * (size // 4 + 1))[:size]

    @initialize()
    def create_one(self) -> None:
        self.create(IDS[0], 2000)

    @rule(plog_id=plog_ids, size=st.integers(1, 3000))
    def create(self, plog_id: PlogId, size: int) -> None:
        if plog_id in self.models:
            with pytest.raises(PlogExists):
                self.plogs.create(plog_id=plog_id, size=size)
        else:
            assert self.plogs.create(plog_id=plog_id, size=size) == plog_id
            self.models[plog_id] = Model(size)

    @rule(plog_id=plog_ids, size=sizes, wait=st.booleans())
    def append(self, plog_id: PlogId, size: int, *, wait: bool) -> None:
        data, model = self.fresh(size), self.models.get(plog_id)
        if model is None:
            with pytest.raises(NoSuchPlog):
                self.plogs.submit(plog_id, 0, data)
        elif model.sealed:
            with pytest.raises(PlogSealed):
                self.plogs.submit(plog_id, len(model.data), data)
        elif size > model.size - len(model.data):
            with pytest.raises(PlogFull):
                self.plogs.submit(plog_id, len(model.data), data)
        else:
            pending = self.plogs.submit(plog_id, len(model.data), data)
            model.data += data
            model.pending.append((pending, len(model.data)))
            if wait:
                self.collect(plog_id, -1)

    @rule(plog_id=plog_ids, number=st.integers(0, 3))
    def collect(self, plog_id: PlogId, number: int) -> None:
        model = self.models.get(plog_id)
        if model is not None and model.pending:
            pending, end = model.pending.pop(number % len(model.pending))
            assert pending.result() == end
            model.acked = max(model.acked, end)

    @rule(plog_id=plog_ids, off=st.sampled_from([-5, -1, 1, 7]))
    def append_elsewhere(self, plog_id: PlogId, off: int) -> None:
        model = self.models.get(plog_id)
        if model is not None and not model.sealed:
            with pytest.raises(WrongOffset) as caught:
                self.plogs.append(plog_id, len(model.data) + off, b"x")
            assert caught.value.expected == len(model.data)

    @rule(plog_id=plog_ids, part=st.floats(0, 1.2))
    def seal(self, plog_id: PlogId, part: float) -> None:
        model = self.models.get(plog_id)
        if model is None:
            with pytest.raises(NoSuchPlog):
                self.plogs.seal(plog_id, 0)
            return
        offset = int(part * len(model.data))
        if model.sealed and offset != len(model.data):
            with pytest.raises(PlogSealed) as caught:
                self.plogs.seal(plog_id, offset)
            assert caught.value.sealed_offset == len(model.data)
            return
        length = min(offset, len(model.data))
        assert self.plogs.seal(plog_id, offset) == length
        for pending, end in model.pending:
            assert pending.result() == end
        self.models[plog_id] = Model(model.size, model.data[:length], length, sealed=True)

    @rule(plog_id=plog_ids)
    def delete(self, plog_id: PlogId) -> None:
        if plog_id in self.models:
            self.plogs.delete(plog_id)
            for pending, end in self.models.pop(plog_id).pending:
                assert pending.result() == end
        else:
            with pytest.raises(NoSuchPlog):
                self.plogs.delete(plog_id)

    @rule()
    def reopen(self) -> None:
        self.plogs.close()
        for model in self.models.values():
            for pending, end in model.pending:
                assert pending.result() == end
            model.pending, model.acked = [], len(model.data)
        self.plogs = self.open()

    @rule()
    @precondition(lambda self: isinstance(self.disk, MemoryDisk))
    def kill(self) -> None:
        """Go on with what the disk holds now, as after kill -9."""
        assert isinstance(self.disk, MemoryDisk)
        assert isinstance(self.plogs, FilePlogs)
        checkpointer = self.plogs._journal._checkpointer
        if checkpointer is not None:
            checkpointer.join()  # it would go on in the copy's past
        self.disk = copy_of(self.disk)
        self.plogs = self.open()
        self.take_what_was_durable()

    def take_what_was_durable(self) -> None:
        """Continue the model with what the plogs hold: all that was acknowledged, and perhaps more."""
        for plog_id, model in self.models.items():
            length = self.plogs.info(plog_id).length
            assert model.acked <= length <= len(model.data)
            model.data, model.acked, model.pending = model.data[:length], length, []

    @rule(plog_id=plog_ids, low=st.floats(0, 1), high=st.floats(0, 1))
    def read(self, plog_id: PlogId, low: float, high: float) -> None:
        model = self.models.get(plog_id)
        if model is None:
            with pytest.raises(NoSuchPlog):
                self.plogs.read(plog_id, 0, 0)
            return
        length = self.plogs.info(plog_id).length
        start, end = sorted((int(low * length), int(high * length)))
        assert bytes(self.plogs.read(plog_id, start, end - start)) == model.data[start:end]
        with pytest.raises(ReadOutOfRange) as caught:
            self.plogs.read(plog_id, start, length - start + 1)
        assert caught.value.length == length

    @invariant()
    def every_plog_is_as_in_the_model(self) -> None:
        for plog_id, model in self.models.items():
            info = self.plogs.info(plog_id)
            assert (info.sealed, info.size) == (model.sealed, model.size)
            assert model.acked <= info.length <= len(model.data)
            assert model.pending or info.length == len(model.data)
            assert bytes(self.plogs.read(plog_id, 0, info.length)) == model.data[: info.length]

    def teardown(self) -> None:
        self.plogs.close()


class FolderMachine(PlogMachine):
    """The same in a folder of the operating system."""

    def make_disk(self) -> Disk:
        self.folder = tempfile.mkdtemp()
        return OsDisk(self.folder)

    def same_disk(self) -> Disk:
        return OsDisk(self.folder)

    def teardown(self) -> None:
        super().teardown()
        self.disk.close()
        shutil.rmtree(self.folder)


def copy_of(disk: MemoryDisk) -> MemoryDisk:
    copy = MemoryDisk()
    for name in disk.names():
        source, target = disk.open(name), copy.create(name)
        target.reserve(source.size())
        target.pwritev([source.view(0, source.size())], 0)
    return copy


TestPlogsInMemory = PlogMachine.TestCase
TestPlogsInMemory.settings = settings(max_examples=examples(150), stateful_step_count=40)
TestPlogsInAFolder = FolderMachine.TestCase
TestPlogsInAFolder.settings = settings(max_examples=examples(25), stateful_step_count=30)
