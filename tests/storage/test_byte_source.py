# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robostream.storage import ByteRange, choose_gap, coalesce

RANGES = st.lists(
    st.builds(
        lambda start, size: ByteRange(start, start + size),
        st.integers(0, 2000),
        st.integers(1, 300),
    ),
    max_size=30,
)


@given(ranges=RANGES, max_gap=st.integers(0, 200), max_read=st.integers(1, 1000))
def test_reads_cover_every_range_within_the_limits(
    ranges: list[ByteRange], max_gap: int, max_read: int
) -> None:
    """Each range lies whole in one read; reads ascend; gaps and lengths stay within bounds."""
    reads = coalesce(ranges, max_gap_bytes=max_gap, max_read_bytes=max_read)
    longest = max((r.stop - r.start for r in ranges), default=0)

    assert all(any(r.start <= w.start and w.stop <= r.stop for r in reads) for w in ranges)
    assert [r.start for r in reads] == sorted(r.start for r in reads)
    assert all(r.stop - r.start <= max(max_read, longest) for r in reads)
    covered = {byte for w in ranges for byte in range(w.start, w.stop)}
    for read in reads:
        bare = run = 0
        for byte in range(read.start, read.stop):
            run = 0 if byte in covered else run + 1
            bare = max(bare, run)
        assert bare <= max_gap


@given(ranges=RANGES, share=st.floats(0, 1))
def test_a_lean_gap_adds_no_more_than_its_share(ranges: list[ByteRange], share: float) -> None:
    """Merging across all gaps up to it adds few unwanted bytes; a wider gap would add too many."""
    wanted = len({byte for w in ranges for byte in range(w.start, w.stop)})
    gap = choose_gap(ranges, share)
    read, wider = (
        sum(r.stop - r.start for r in coalesce(ranges, max_gap_bytes=g, max_read_bytes=10**9))
        for g in (gap, gap + 1)
    )

    assert read <= wanted + share * wanted
    assert wider == read or int(wider) > wanted + int(share * wanted)


def test_neighbours_become_one_read() -> None:
    """Adjacent and nearby ranges are read together; distant ones are not."""
    ranges = [ByteRange(100, 200), ByteRange(0, 100), ByteRange(210, 220), ByteRange(900, 950)]

    assert coalesce(ranges, max_gap_bytes=10, max_read_bytes=1000) == [
        ByteRange(0, 220),
        ByteRange(900, 950),
    ]


@pytest.mark.parametrize(("start", "stop"), [(5, 5), (6, 5), (-1, 4)])
def test_a_range_is_never_empty(start: int, stop: int) -> None:
    """A byte range has at least one byte and begins at 0 or later."""
    with pytest.raises(ValueError, match="want 0 <= start < stop"):
        ByteRange(start, stop)
