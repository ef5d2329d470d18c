# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
from collections import deque

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robostream.device import (
    BatchSlots,
    create_and_map,
    create_memory,
    format_batch,
    map_memory,
    pack,
    unpack,
)
from robostream.errors import WorkerError
from tests.forked import in_child
from tests.loader.programs import open_files

LAYOUTS = st.dictionaries(
    st.text("abcdef", min_size=1, max_size=3),
    st.tuples(
        st.lists(st.integers(0, 70), max_size=3).map(tuple),
        st.sampled_from([np.uint8, np.float32, np.int64, np.bool_, np.uint16]),
    ),
    max_size=6,
)


def test_memory_is_shared_between_processes() -> None:
    """It begins as zeros; what one process writes, another reads; the descriptor may be closed."""
    fd = create_memory(8)
    memory = map_memory(fd)
    assert memory.tolist() == [0] * 8

    def write() -> None:
        map_memory(fd)[3] = 7

    assert os.waitpid(in_child(write), 0)[1] == 0
    os.close(fd)

    assert memory.tolist() == [0, 0, 0, 7, 0, 0, 0, 0]


def test_memory_of_nothing_can_be_mapped() -> None:
    """The system maps no empty file, so there is one byte."""
    fd = create_memory(0)
    memory = map_memory(fd)
    os.close(fd)

    assert len(memory) == 1


@pytest.mark.parametrize("nbytes", [1 << 62, 1 << 80])
def test_memory_that_cannot_be_had_names_the_cure(nbytes: int) -> None:
    """With the amount, and the settings to lower; no descriptor is left."""
    files = open_files()
    with pytest.raises(WorkerError, match=r"needs .* of memory in one piece: .*Lower frame_cache"):
        create_and_map(nbytes)

    assert open_files() == files  # also if the system refuses it only when it is mapped


def test_packed_objects_share_the_memory_of_their_arrays() -> None:
    """Two copies are equal, read the same bytes, and cannot be written to."""
    content = {
        "numbers": np.arange(100_000),
        "empty": np.zeros((0, 3), np.float32),
        "pictures": np.arange(300, dtype=np.uint16).reshape(10, 30),
        "transform": lambda value: value + 1,
        "text": "words",
    }
    fd = pack(content)
    copies = [unpack(fd), unpack(fd)]
    memory = map_memory(fd)
    os.close(fd)
    for copy in copies:
        assert all(np.array_equal(copy[key], content[key]) for key in ("numbers", "pictures"))
        assert copy["empty"].shape == (0, 3)
        assert copy["transform"](1) == 2
        assert copy["text"] == "words"
        assert not copy["numbers"].flags.writeable
    at = memory.tobytes().index(np.arange(100_000).tobytes())
    memory[at] = 255

    assert [copy["numbers"][0] for copy in copies] == [255, 255]


@given(arrays=LAYOUTS, batch_size=st.integers(1, 9), slots=st.integers(1, 3), data=st.data())
def test_what_is_written_to_one_array_is_in_no_other(
    arrays: dict[str, tuple[tuple[int, ...], type]],
    batch_size: int,
    slots: int,
    data: st.DataObject,
) -> None:
    """Every array of every slot has bytes of its own, also where a batch is short."""
    batches = format_batch(arrays, batch_size)
    memory = np.zeros(slots * batches.slot_bytes, np.uint8)
    size = data.draw(st.integers(1, batch_size))
    views = [batches.view(memory, slot, size) for slot in range(slots)]
    number = 0
    for view in views:
        for array in view.values():
            number += 1
            array[...] = number
    number = 0
    for view in views:
        for key, array in view.items():
            number += 1
            shape, dtype = arrays[key]

            assert array.shape == (size, *shape)
            assert array.dtype == dtype
            assert (array == np.full((), number).astype(dtype)).all()


@given(arrays=LAYOUTS, batch_size=st.integers(1, 9))
def test_arrays_begin_at_pages_and_small_ones_come_first(
    arrays: dict[str, tuple[tuple[int, ...], type]], batch_size: int
) -> None:
    """One copy moves all small arrays; images, which are bytes, are never among them."""
    batches = format_batch(arrays, batch_size)
    for key, (offset, _, dtype) in batches.arrays.items():
        assert offset % 4096 == 0
        nbytes = batch_size * int(np.prod(arrays[key][0])) * np.dtype(dtype).itemsize
        if np.dtype(dtype) == np.uint8:
            assert nbytes == 0 or offset >= batches.small_bytes
        elif nbytes < 1 << 20:
            assert offset + nbytes <= batches.small_bytes

    assert batches.slot_bytes % 4096 == 0
    assert 0 <= batches.small_bytes <= batches.slot_bytes


def test_the_last_slot_may_go_to_another_thread() -> None:
    """Threads with an iterator each take slots at the same time; one that comes late gets None."""

    class Contended(deque[int]):
        def __len__(self) -> int:
            count = super().__len__()
            self.clear()  # another thread takes them once they are counted
            return count

    slots = BatchSlots(format_batch({"action": ((2,), np.float32)}, 4), 1, 1)
    slots._free = Contended(slots._free)

    assert [slots.take(), slots.take()] == [0, None]


def test_batches_that_no_memory_can_hold_are_told() -> None:
    """With what to lower; the system's own error names nothing."""
    batches = format_batch({"action": ((1 << 40,), np.float32)}, 8)

    with pytest.raises(WorkerError, match=r"needs 128\.0 TiB of memory.*batch_size"):
        BatchSlots(batches, 4, 2)
