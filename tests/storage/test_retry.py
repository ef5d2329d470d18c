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

from robostream import config
from robostream.errors import UnreachableError
from robostream.storage import TRAFFIC, Traffic
from robostream.storage.retry import (
    RateLimit,
    RateState,
    RetryPolicy,
    TransientError,
    backoff_s,
)

TIMES = st.floats(0, 1e6)


@pytest.fixture
def policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RetryPolicy:
    """Three retries, and a clock that does not wait."""
    monkeypatch.setattr(time, "sleep", lambda _: None)
    return RetryPolicy(RateLimit(tmp_path, "server"), Traffic(), 3)


def answers(*script: TransientError | str) -> list[TransientError | str]:
    return list(reversed(script))


def play(policy: RetryPolicy, script: list[TransientError | str]) -> str:
    def ask() -> str:
        step = script.pop()
        if isinstance(step, TransientError):
            raise step
        return step

    return policy.call(ask, "the file")


@given(failures=st.integers(0, 50), draw=st.floats(0, 1, exclude_max=True))
def test_delays_grow_and_stay_below_ten_seconds(failures: int, draw: float) -> None:
    """Backoff is a capped exponential with full jitter, and at least what the server asks for."""
    assert 0 <= backoff_s(failures, None, draw) <= min(0.5 * 2 ** max(failures - 1, 0), 10)
    assert backoff_s(failures, 7.0, draw) >= 7.0


def test_a_failure_that_passes_is_asked_again(policy: RetryPolicy) -> None:
    """After three failures and retries, the response is returned."""
    failures = [
        TransientError("HTTP 500"),
        TransientError("reset"),
        TransientError("silence", "stall"),
    ]

    assert play(policy, answers(*failures, "bytes")) == "bytes"
    counts = dict(zip(TRAFFIC, policy.traffic.take(), strict=True))
    assert (counts["requests"], counts["retries"], counts["stalls"]) == (4, 3, 1)


def test_giving_up_says_what_and_how_often(policy: RetryPolicy) -> None:
    """One failure too many raises the last cause, without its secrets."""
    last = TransientError("no route to https://a.b/c?signature=hidden")

    with pytest.raises(
        UnreachableError, match=r"the file: gave up after 4 attempts.*no route"
    ) as e:
        play(policy, answers(*[TransientError("HTTP 503")] * 3, last, "too late"))
    assert "hidden" not in str(e.value)


def test_throttling_is_waited_out(policy: RetryPolicy) -> None:
    """A throttled request is repeated and does not count as a failure."""
    throttled = [TransientError("HTTP 429", "throttled", wait_s=0.0) for _ in range(20)]

    assert play(policy, answers(*throttled, "bytes")) == "bytes"


@pytest.mark.parametrize(
    "name", ["ROBOSTREAM_REMOTE_IO_MAX_RETRIES", "LEROBOT_REMOTE_IO_MAX_RETRIES"]
)
def test_the_environment_says_how_often(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Robostream's and LeRobot's variables are read; anything but a number is an error."""
    assert config.remote_retries() == config.REMOTE_RETRIES
    monkeypatch.setenv(name, "3")
    assert config.remote_retries() == 3
    monkeypatch.setenv(name, "often")

    with pytest.raises(ValueError, match=f"{name} must be a whole number"):
        config.remote_retries()


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
