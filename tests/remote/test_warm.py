# SPDX-License-Identifier: Apache-2.0
"""`robostream cache warm`, as a person and as a script call it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from robostream.testing import (
    Exchange,
    Fault,
    Proxy,
    Script,
    serve_files,
    start_proxy,
)
from tests.loader.programs import TAKES_CTRL_C
from tests.remote.conftest import Serve, stream_epochs
from tests.remote.program import Report

pytestmark = pytest.mark.long


def start(home: Path, url: str, *arguments: str, **variables: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "robostream.cli.main", "cache", "warm"]
    return subprocess.Popen(
        [*TAKES_CTRL_C, *command, url, "--cache-dir", str(home / "cache"), *arguments],
        env=os.environ | {"ROBOSTREAM_CACHE": str(home), "HF_LEROBOT_HOME": str(home)} | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def warm(home: Path, url: str, *arguments: str, **variables: str) -> dict[str, Any]:
    """Run it to its end and return what it found."""
    with start(home, url, "--json", *arguments, **variables) as process:
        out, err = process.communicate()
    assert process.returncode == 0, err
    found: dict[str, Any] = json.loads(out)
    return found


def of_the_dataset(journal: list[Exchange]) -> int:
    """The bytes of rows and images that were fetched."""
    return sum(e.sent_bytes for e in journal if "/data/" in e.path or "/videos/" in e.path)


def dataset_bytes(root: Path) -> int:
    files = [*root.glob("data/**/*.parquet"), *root.glob("videos/**/*.mp4")]
    return sum(path.stat().st_size for path in files)


def test_a_run_after_warming_fetches_nothing(
    served: Serve, dataset: Path, local: Report, tmp_path: Path
) -> None:
    """A Hub dataset is fetched once by its name, then streamed from disk."""
    found = served("hub")
    with start_proxy(found.url) as proxy:
        near = found.behind(proxy.url)
        warmed = warm(tmp_path, "lab/cups", **near.environment)
        begun = len(proxy.journal())
        stream = near.stream | {"cache_dir": str(tmp_path / "cache")}
        report = stream_epochs(tmp_path / "home", stream, near.environment)
        later = of_the_dataset(proxy.journal(begun))

    assert warmed["fetched_bytes"] == warmed["kept_bytes"] == dataset_bytes(dataset)
    assert warmed["size_bytes"] == warmed["fitting_bytes"] == dataset_bytes(dataset)
    assert report.error == "", report.words
    assert report.epochs[0] == local.epochs[0]
    assert later == 0


def test_an_interrupted_warming_goes_on_where_it_was(dataset: Path, tmp_path: Path) -> None:
    """Ctrl-C reports what was fetched; the next call fetches only the rest."""
    size = dataset_bytes(dataset)
    with serve_files(dataset) as server, start_proxy(server) as proxy:
        # After some files the server falls silent, so that nothing ends before the interrupt.
        proxy.play(Script((Fault("stall", path="videos/", skip=6, seconds=2),)))
        with start(tmp_path, proxy.url, "--json") as process:
            # An interrupt while threads are being started may miss one of them in its count.
            _wait_for(proxy, 100_000)
            process.send_signal(signal.SIGINT)
            proxy.play(Script())
            out, err = process.communicate()
        rest = warm(tmp_path, proxy.url)

    assert process.returncode == 130, err
    assert "interrupted" in err
    fetched = json.loads(out)["fetched_bytes"]
    assert 0 < fetched < size
    assert fetched + rest["fetched_bytes"] == rest["kept_bytes"] == size


def _wait_for(proxy: Proxy, nbytes: int) -> None:
    deadline = time.monotonic() + 60
    while of_the_dataset(proxy.journal()) < nbytes:
        assert time.monotonic() < deadline, "nothing is fetched"
        time.sleep(0.05)


def test_a_dataset_that_does_not_fit_is_told(served: Serve, dataset: Path, tmp_path: Path) -> None:
    """As much as fits is fetched, and none of it is evicted for the rest."""
    limit, hub = dataset_bytes(dataset) // 2, served("hub")
    limited = "lab/cups", "--cache-limit", str(limit)
    with start(tmp_path, *limited, **hub.environment) as process:
        out, err = process.communicate()
    again = warm(tmp_path, *limited, **hub.environment)

    assert process.returncode == 0, err
    assert "do not fit the cache's limit" in out
    assert again["fetched_bytes"] == 0
    assert 0 < again["kept_bytes"] == again["fitting_bytes"] <= limit


def test_a_local_dataset_needs_no_warming(dataset: Path, tmp_path: Path) -> None:
    """The command says so and creates no cache."""
    with start(tmp_path, str(dataset)) as process:
        out, err = process.communicate()

    assert process.returncode == 0, err
    assert "already on this disk" in out
    assert not (tmp_path / "cache").exists()
