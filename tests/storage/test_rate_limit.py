# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import itertools
import math
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robostream.storage.retry import RateLimit, RateState

TIMES = st.floats(0, 1e6)


@given(
    state=st.builds(RateState, TIMES, st.floats(0, 2), TIMES), now=TIMES, count=st.integers(1, 20)
)
def test_requests_are_a_gap_apart(state: RateState, now: float, count: int) -> None:
    """Simultaneous requests are sent one after the other, none too early."""
    sent: list[float] = []
    for _ in range(count):
        state, send_at = state.schedule(now)
        sent.append(send_at)

    assert sent[0] >= now
    apart = [later - earlier for earlier, later in itertools.pairwise(sent)]
    assert all(
        math.isclose(gap, state.gap_s, abs_tol=1e-6) for gap in apart if sent[-1] < now + 120
    )


@given(count=st.integers(2, 50), wait_s=st.floats(0, 60))
def test_requests_that_were_on_their_way_together_count_once(count: int, wait_s: float) -> None:
    """Fifty throttled requests of one moment widen the gap once."""
    once = RateState().throttled(now=100.0, sent_at=99.0, wait_s=wait_s)
    many = once
    for at in range(count):
        many = many.throttled(now=100.0 + at / 1000, sent_at=99.0, wait_s=wait_s)

    assert many.gap_s == once.gap_s > 0
    assert many.next_at >= 100 + wait_s


def test_the_rate_recovers_by_time_not_by_number() -> None:
    """Ten seconds of successful requests double the rate, whatever their number."""
    for gap_s in (0.05, 0.2, 1.0):
        state, now = RateState(0.0, gap_s, 0.0), 0.0
        while now < 10:
            now += state.gap_s
            state = state.succeeded()

        assert math.isclose(state.gap_s, gap_s / 2, rel_tol=0.1)


def test_a_server_that_never_throttled_is_not_limited(tmp_path: Path) -> None:
    """No request waits, and successes change nothing."""
    limit = RateLimit(tmp_path, "example.org")
    limit.note_success()

    assert [limit.wait() for _ in range(5)] == [0.0] * 5


def test_a_throttled_process_slows_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A throttled request of one process makes another wait, but not for another server."""
    program = (
        "import sys, time; from pathlib import Path; "
        "from robostream.storage.retry import RateLimit; "
        "RateLimit(Path(sys.argv[1]), 'example.org').note_throttled(time.time(), 3600)"
    )
    mine = RateLimit(tmp_path, "example.org")
    assert mine.wait() == 0.0
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True)

    monkeypatch.setattr(time, "sleep", lambda _: None)
    assert 0 < mine.wait() <= 120
    assert RateLimit(tmp_path, "example.com").wait() == 0.0


def test_a_home_that_cannot_be_written_to_is_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process then keeps a rate limit of its own."""
    (tmp_path / "file").write_text("")
    limit = RateLimit(tmp_path / "file" / "limits", "example.org")
    limit.note_throttled(sent_at=1.0, wait_s=3600)
    monkeypatch.setattr(time, "sleep", lambda _: None)

    assert limit.wait() > 0.0
