# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from robostream.workers import format_batch

LAYOUTS = st.dictionaries(
    st.text("abcdef", min_size=1, max_size=3),
    st.tuples(
        st.lists(st.integers(0, 70), max_size=3).map(tuple),
        st.sampled_from([np.uint8, np.float32, np.int64, np.bool_, np.uint16]),
    ),
    max_size=6,
)


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
