# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robostream import config
from robostream.errors import UnreachableError
from robostream.storage import TRAFFIC, Traffic
from robostream.storage.retry import RateLimit, RetryPolicy, TransientError, backoff_s


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
        TransientError("silence", is_stall=True),
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
    throttled = [TransientError("HTTP 429", is_throttled=True, wait_s=0.0) for _ in range(20)]

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
