# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from robostream.plan import (
    CHUNK_FRAMES,
    DecodePacing,
    Schedule,
    is_chunk_due,
    lookahead_steps,
    margin_frames,
    schedule_steps,
)
from tests.plan.schedules import lanes_of, tours

paces = st.builds(
    DecodePacing, st.integers(0, 500), st.integers(0, 100), behind=st.integers(0, 300)
)
counts = st.integers(0, 2_000)


@given(pace=paces, jump=counts, passed=counts, more=st.tuples(counts, counts))
def test_the_goal_never_moves_back(
    pace: DecodePacing, jump: int, passed: int, more: tuple[int, int]
) -> None:
    """The further the head is, and the more frames have left, the further decoding should be."""
    head = pace.first_head + jump

    assert pace.goal(head, passed) <= pace.goal(head + more[0], passed + more[1])


@given(pace=paces, jump=counts, passed=counts)
def test_decoding_that_has_caught_up_keeps_the_margin_or_the_head(
    pace: DecodePacing, jump: int, passed: int
) -> None:
    """Once twice what it was behind has left, the goal is a margin before an even pace."""
    passed += 2 * pace.behind
    head = pace.first_head + jump

    assert pace.goal(head, passed) == max(head, pace.first_head + passed + pace.margin)


@given(pace=paces, jump=counts, passed=counts)
def test_decoding_that_begins_at_the_first_head_is_never_behind_the_head(
    pace: DecodePacing, jump: int, passed: int
) -> None:
    """In long GOPs a single frame costs much, so the head never overtakes decoding."""
    head = pace.first_head + jump
    at_head = DecodePacing(pace.first_head, pace.margin, behind=pace.margin)

    assert at_head.goal(head, passed) >= head
    assert at_head.goal(pace.first_head, 0) == pace.first_head


@given(ahead=counts, head=counts, goal=counts)
def test_decoding_waits_for_a_whole_portion_unless_the_head_needs_less(
    ahead: int, head: int, goal: int
) -> None:
    """Decoding waits until a portion is missing, or a frame before the head is."""
    is_short = goal - ahead < CHUNK_FRAMES
    is_needed = ahead < head <= goal

    assert is_chunk_due(ahead, head, goal) == (not is_short or is_needed)


@given(window=st.integers(1, 1 << 22))
def test_the_margin_is_small_beside_the_window(window: int) -> None:
    """It is never more than the window, and grows with its square root."""
    margin = margin_frames(window)

    assert margin <= window
    assert margin <= 2 * window**0.5 + 2 * CHUNK_FRAMES


@given(tour=tours(quarantine=False), window_frames=st.integers(0, 20))
def test_what_is_decoded_ahead_is_delivered_soon(tour: Schedule, window_frames: int) -> None:
    """A lane's frames up to the margin and a chunk beyond its head leave within so many steps."""
    lanes = lanes_of(tour)
    reach = margin_frames(tour.plan.window) + CHUNK_FRAMES + window_frames
    steps = lookahead_steps(tour, window_frames)
    delivered: list[list[tuple[int, int, int]]] = [[] for _ in lanes]
    for share in schedule_steps(tour, lanes):
        for at, frame, head in zip(share.lanes, share.frames, share.heads, strict=True):
            delivered[at].append((share.step, frame, head))

    for samples in delivered:
        for step, _, head in samples:
            later = [other for other, frame, _ in samples if frame < head + reach]
            assert max(later) - step <= steps
