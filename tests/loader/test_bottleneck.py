# SPDX-License-Identifier: Apache-2.0
"""What limits a run is named by its figures, in one line."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from robostream.decode import COUNTERS
from robostream.loader import stats
from robostream.loader.stats import LoadShares, describe_limit
from tests.loader.streams import open_loader, open_stream

# Workers that do nothing but decode, for a consumer that only waits.
DECODING = LoadShares(
    waited=0.9,
    busy=0.95,
    busiest=0.97,
    reading=0.02,
    decoding=0.7,
    is_remote=False,
    evicted=0.0,
    lacking_bytes=0,
)
GIB = 1 << 30
CASES = [
    (DECODING, "decoding: workers were busy 95% of their time and decoded 70% of it", "more cores"),
    (replace(DECODING, waited=0.03), "the training loop, which waited 3% of its time", ""),
    (replace(DECODING, waited=0.03, busy=0.2), "the training loop, which waited 3%", ""),
    (
        replace(DECODING, busy=0.64, busiest=0.9),
        "the slowest worker: workers were busy 64% of their time, the busiest 90%",
        "prefetch_factor",
    ),
    (
        replace(DECODING, evicted=0.4, lacking_bytes=2 * GIB),
        "memory: 40% of the decoded frames were evicted before their use; 2.0 GiB more",
        "frame_cache_bytes",
    ),
    # All frames are cached by then.
    (
        replace(DECODING, decoding=0.0),
        "converting and copying frames: workers were busy 95% of their time and decoded 0% of it",
        "(num_workers), resize or fewer cameras would help",
    ),
    # Frames that wait for the epoch's end may be evicted though the lanes have what they need.
    (replace(DECODING, evicted=0.4), "decoding: ", ""),
    # Little memory that costs little.
    (replace(DECODING, evicted=0.01, lacking_bytes=GIB), "decoding: ", ""),
    (
        replace(DECODING, reading=0.6, is_remote=True),
        "the network: workers waited 60% of their time for bytes",
        "robostream cache warm",
    ),
    (
        replace(DECODING, reading=0.6, is_remote=True, evicted=0.4, lacking_bytes=GIB),
        "the network: ",
        "",
    ),
    (replace(DECODING, reading=0.6), "the disk: workers waited 60%", "faster disk"),
]


@pytest.mark.parametrize(("load", "limit", "cure"), CASES)
def test_the_limit_has_a_name_and_a_cure(load: LoadShares, limit: str, cure: str) -> None:
    """The figures that show it come first, then what would help."""
    line = describe_limit(load)

    assert line.startswith(limit)
    assert cure in line
    assert "\n" not in line


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_names_its_limit(workers: int, caplog: pytest.LogCaptureFixture) -> None:
    """With every epoch in the log, at any time on request, and with the shares as numbers."""
    loader = open_loader(open_stream(frame_cache_bytes="256KiB"), 4, num_workers=workers)
    assert loader.limited_by() == "nothing yet: no batch came"
    with caplog.at_level(logging.INFO, "robostream"):
        list(loader)
    found = loader.stats()

    assert f"limited by {loader.limited_by()}" in caplog.text
    assert found["frame_cache_lacking_bytes"] > 0
    assert found["busy_s"] > 0
    # Workers may have built all batches before the consumer takes the first.
    assert 0 <= found["epoch_busy"] <= found["epoch_busiest"] <= 1
    assert workers or found["epoch_busy"] > 0
    assert 0 < found["epoch_waited"] <= 1
    loader.close()


def test_shares_leave_out_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the first batch, workers import and open files, and are busy with nothing else."""
    times = [0.0]
    monkeypatch.setattr(stats.time, "perf_counter", lambda: times[-1])
    counts = stats.LoaderStats(num_workers=2, images_per_sample=1)
    busy = COUNTERS.index("busy_s")
    for time_s, waited_s in ((10.0, 10.0), (12.0, 1.0), (14.0, 0.5)):
        times.append(time_s)
        counts.counters[:, busy] += (2.0, 1.0)
        counts.add(4, waited_s)
    shares = counts.shares()

    assert (shares.busy, shares.busiest) == (0.75, 1.0)
    assert shares.waited == 1.5 / 4
    assert counts.stats()["samples_per_s"] == 12 / 14
