# SPDX-License-Identifier: Apache-2.0
"""The cases of benchmarks, and the measuring loop that takes their batches.

A case is a synthetic dataset, the samples taken from it, and the loader's settings. The loop notes
when each batch arrived; rates and waits follow from that.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice, product
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from robostream import config
from robostream.bench.results import Figures, show_progress
from robostream.errors import RobostreamError, SelectionError

if TYPE_CHECKING:
    from robostream.tools import SynthSpec

Batch = dict[str, Any]
K = TypeVar("K")
V = TypeVar("V")
SARM_S = tuple(float(step) for step in range(8))
PAST_S = tuple(-0.4 * step for step in range(7, -1, -1))
# Rates are given for intervals of this many seconds, so that a stall shows.
INTERVAL_S = 2.0
# A stall at the start lies within this many intervals.
START_INTERVALS = 10
# A loader decodes most in so many seconds after its first batch.
START_S = 4.0


@dataclass(frozen=True, slots=True)
class BenchData:
    """A synthetic dataset, created once and reused."""

    name: str  # the prefix of its folder
    spec: SynthSpec
    title: str = ""  # its name in tables
    variant: Callable[[Path, Path], object] | None = None  # makes another dataset of it

    def open(self) -> Path:
        """Return the folder; create it if it does not exist.

        It lies in `$ROBOSTREAM_CACHE/bench`, named after a digest of its contents, and may be
        deleted at any time.
        """
        contents = json.dumps(dataclasses.asdict(self.spec), sort_keys=True, default=str)
        digest = hashlib.sha256(contents.encode())
        folder = config.bench_home() / f"{self.name}-{digest.hexdigest()[:12]}"
        root = create_once(folder, self._make)
        if self.variant is None:
            return root
        folder = root.with_name(f"{root.name}-{self.variant.__name__}")
        return create_once(folder, partial(self.variant, root))

    def files(self, pattern: str = "videos/**/*.mp4") -> list[str]:
        """Return the paths of its files that match a pattern."""
        return sorted(map(str, self.open().glob(pattern)))

    def _make(self, folder: Path) -> None:
        from robostream.loader import share_of_cores  # imports torch
        from robostream.tools import make_dataset

        make_dataset(folder, self.spec, jobs=share_of_cores(1))


@dataclass(frozen=True, slots=True)
class BenchCase:
    """One row of a benchmark: the batches to load, and how."""

    name: str  # in tables and file names
    data: BenchData
    batch_size: int = 32
    window_s: tuple[float, ...] = (0.0,)  # the frames of a sample, relative to its own
    workers: int | None = None  # None for the loader's default
    # Settings of robostream's dataset that differ from the defaults, and the same in words.
    options: Mapping[str, Any] = field(default_factory=dict)
    setting: str = "nothing"
    loader: str = "robostream"  # how batches are loaded, where a benchmark knows several ways
    goal: float | None = None  # images/s over the floor's
    is_floor_random: bool = False  # the floor decodes in random order: nothing else is possible

    @property
    def mode(self) -> str:
        """The kind of samples: "single" (one frame) or "sarm" (a window of several)."""
        return "single" if len(self.window_s) == 1 else "sarm"

    @property
    def cameras(self) -> list[str]:
        """The keys of the dataset's cameras."""
        from robostream.meta import LeRobotDatasetMetadata  # imports pyarrow

        return LeRobotDatasetMetadata("bench/case", root=self.data.open()).camera_keys

    @property
    def images_per_sample(self) -> int:
        """The images of a sample, over all cameras."""
        return len(self.cameras) * len(self.window_s)

    def windows(self) -> dict[str, list[float]] | None:
        """Return the windows as `delta_timestamps`; None for single frames."""
        if self.mode == "single":
            return None
        return {key: list(self.window_s) for key in self.cameras}


def select_named(known: Iterable[Any], names: Sequence[str]) -> list[Any]:
    """Return the cases or loaders with these names; all of them without names. Pure."""
    by_name = {entry.name: entry for entry in known}
    if unknown := sorted(set(names) - set(by_name)):
        raise SelectionError(f"want some of {', '.join(by_name)}; got {', '.join(unknown)}")
    return [entry for name, entry in by_name.items() if not names or name in names]


def merge_row_groups(root: Path, folder: Path) -> None:
    """Copy a dataset, with one row group per Parquet file.

    Tools that rewrite a whole data file leave it like that.
    """
    import pyarrow.parquet as pq

    shutil.copytree(root, folder, copy_function=os.link)
    for path in folder.glob("data/*/*.parquet"):
        table = pq.read_table(path)
        path.unlink()  # a hard link: writing to it would change the other dataset
        pq.write_table(table, path, row_group_size=table.num_rows)


def create_once(folder: Path, make: Callable[[Path], object]) -> Path:
    """Return a folder; if it does not exist, `make` makes it under another name first."""
    if not folder.is_dir():
        temp = folder.with_name(f"{folder.name}.{os.getpid()}")
        shutil.rmtree(temp, ignore_errors=True)
        temp.parent.mkdir(parents=True, exist_ok=True)
        show_progress(f"creating {folder.name}; later runs reuse it")
        make(temp)
        temp.rename(folder)
    return folder


@dataclass(frozen=True, slots=True)
class BatchTimes:
    """The arrivals of batches, in seconds since the first was requested."""

    warmup_batches: int  # they come before the measurement
    arrivals_s: list[float]
    waits_s: list[float]  # how long the consumer waited for each batch
    samples: list[int]  # of each batch
    end_s: float = 0.0  # when the consumer was done with the last batch

    @property
    def num_measured(self) -> int:
        """The samples after the warm-up."""
        return sum(self.samples[self.warmup_batches :])

    @property
    def begin_s(self) -> float:
        """When the measurement began: at the arrival of the last warm-up batch."""
        return self.arrivals_s[self.warmup_batches - 1] if self.warmup_batches else 0.0

    @property
    def steady_s(self) -> float:
        """The seconds from the end of the warm-up to the last batch."""
        return self.arrivals_s[-1] - self.begin_s


def consume(
    batches: Iterable[Batch],
    *,
    warmup_batches: int = 1,
    max_batches: int | None = None,
    on_batch: Callable[[Batch], None] | None = None,
    finish: Callable[[], None] | None = None,
) -> BatchTimes:
    """Take batches, all or at most `max_batches`, and return when each arrived.

    `on_batch` is called after the arrival of each batch was noted, `finish` before the end is.
    """
    arrivals_s: list[float] = []
    waits_s: list[float] = []
    samples: list[int] = []
    begin = requested = time.perf_counter()
    for batch in islice(batches, max_batches):
        arrived = time.perf_counter()
        arrivals_s.append(arrived - begin)
        waits_s.append(arrived - requested)
        samples.append(len(batch["index"]))
        if on_batch is not None:
            on_batch(batch)
        del batch
        requested = time.perf_counter()
    if finish is not None:
        finish()
        requested = time.perf_counter()
    return BatchTimes(warmup_batches, arrivals_s, waits_s, samples, requested - begin)


def limit_time(
    batches: Iterable[Batch], seconds: float, *, from_first_batch: bool = True
) -> Iterator[Batch]:
    """Yield batches until `seconds` have passed since the first one, or since now; 0 for all."""
    begin = time.perf_counter()
    for number, batch in enumerate(batches):
        if number == 0 and from_first_batch:
            begin = time.perf_counter()
        yield batch
        del batch
        if seconds and time.perf_counter() - begin > seconds:
            return


def measure_loading(
    case: BenchCase,
    open_loader: Callable[[BenchCase], Any],
    *,
    batches_of: Callable[[Any], Iterable[Batch]] = iter,
    seconds: float = 0.0,
    **options: Any,
) -> tuple[Any, Figures]:
    """Load batches in this process; return the loader and its figures, from the first batch on.

    `batches_of` returns the batches of a loader, by default those of one epoch. They are taken for
    `seconds`, or all if that is 0; `options` are those of `consume`.
    """
    import torch

    torch.set_num_threads(1)
    begin = time.perf_counter()
    loader = open_loader(case)
    opened_s = time.perf_counter() - begin
    times = consume(limit_time(batches_of(loader), seconds), **options)
    if not times.num_measured:
        raise RobostreamError("no batch arrived after the first one")
    arrivals = [at - times.begin_s for at in times.arrivals_s[times.warmup_batches :]]
    per_sample = case.images_per_sample
    images = [per_sample * count for count in times.samples[times.warmup_batches :]]
    seconds = times.end_s - times.begin_s
    images_per_s = sum(images) / seconds
    rates = rates_by_interval(arrivals, images)
    return loader, {
        "images_per_s": images_per_s,
        "images_per_s_after_start": rate_after(START_S, arrivals, images, seconds),
        "samples_per_s": images_per_s / per_sample,
        "first_batch_s": opened_s + times.arrivals_s[0],
        "samples": times.num_measured,
        "rates": [round(rate) for rate in rates],
        "lowest_over_median": min(rates[:START_INTERVALS]) / (median(rates) or 1.0),
    }


def latency_figures(times: BatchTimes, batch_size: int) -> Figures:
    """Return throughput, latencies and the start-up curve."""
    gaps = np.diff([times.begin_s, *times.arrivals_s[times.warmup_batches :]])
    waits = np.array(times.waits_s[times.warmup_batches :])
    percentiles = {
        f"p{percent}_{name}": 1e3 * float(np.percentile(seconds, percent))
        for name, seconds in (("sample_latency_ms", gaps / batch_size), ("batch_wait_ms", waits))
        for percent in (50, 95, 99)
    }
    rates = rates_by_interval(times.arrivals_s, times.samples)
    return {
        "frames_measured": times.num_measured,
        "samples_per_s": times.num_measured / times.steady_s,
        "first_batch_latency_s": times.arrivals_s[0],
        **percentiles,
        "steady_time_s": times.steady_s,
        "total_time_s": times.arrivals_s[-1],
        "wait_pct": 100 * float(waits.sum()) / times.steady_s,
        "stretch_s": INTERVAL_S,
        "samples_per_s_by_stretch": [round(rate, 1) for rate in rates],
        "start_lowest_samples_per_s": min(rates[:START_INTERVALS]),
        "start_median_samples_per_s": median(rates),
    }


def rates_by_interval(arrivals_s: Sequence[float], counts: Sequence[int]) -> list[float]:
    """Return the rate in each interval since the start. Pure.

    The last, incomplete interval counts only if there is no other.
    """
    whole = int(arrivals_s[-1] // INTERVAL_S)
    if whole == 0:
        return [sum(counts) / arrivals_s[-1]]
    edges = np.arange(whole + 1) * INTERVAL_S
    delivered, _ = np.histogram(arrivals_s, bins=edges, weights=np.array(counts, float))
    return [float(count) / INTERVAL_S for count in delivered]


def rate_after(
    start_s: float, arrivals_s: Sequence[float], counts: Sequence[int], end_s: float
) -> float:
    """Return the rate after the start, or over all if nothing arrived after it. Pure."""
    late = [count for at, count in zip(arrivals_s, counts, strict=True) if at > start_s]
    return sum(late) / (end_s - start_s) if late else sum(counts) / end_s


def run_rounds(runs: Mapping[K, Callable[[], V]], rounds: int) -> dict[K, list[V]]:
    """Return the results of each run; all runs take turns, so a disturbance hits all alike."""
    found: dict[K, list[V]] = {key: [] for key in runs}
    for _, (key, run) in product(range(rounds), runs.items()):
        found[key].append(run())
    return found


def cpu_s(work: Callable[[], object]) -> float:
    """Return the processor time that a call takes."""
    begin = time.process_time()
    work()
    return time.process_time() - begin
