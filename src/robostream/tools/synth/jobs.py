# SPDX-License-Identifier: Apache-2.0
"""Episodes made by several processes at a time, handed over in order."""

from __future__ import annotations

import multiprocessing
import shutil
from collections import deque
from collections.abc import Generator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from robostream.errors import EncoderStalledError
from robostream.meta import DatasetInfo
from robostream.tools.child_processes import end_with_parent, no_interrupts, safe_imports
from robostream.tools.synth.episode import frames_of, script_of
from robostream.tools.synth.spec import SynthSpec
from robostream.write import EpisodeApart, RecordingOptions, record_apart


@dataclass(frozen=True, slots=True)
class EpisodeJob:
    """What a process needs to make any episode of a dataset; `folder` is where they are put."""

    spec: SynthSpec
    folder: Path
    info: DatasetInfo
    options: RecordingOptions


def record_episodes(job: EpisodeJob, processes: int) -> Generator[EpisodeApart]:
    """Yield all episodes in order. Close it to end the processes."""
    originals = len({job.spec.original(episode) for episode in range(job.spec.episodes)})
    made = _make(job, originals, processes)
    if originals == job.spec.episodes:
        yield from made
        return
    kept: list[EpisodeApart] = []
    for episode in range(job.spec.episodes):
        if episode < originals:
            kept.append(next(made))
        yield _copy(kept[job.spec.original(episode)], job.folder / f"{episode} again")


def _make(job: EpisodeJob, number: int, processes: int) -> Generator[EpisodeApart]:
    """Yield the first episodes in order, each made as soon as one of the processes is free.

    At most two for each process are made ahead.
    """
    episodes = iter(range(number))
    if min(processes, number) <= 1:
        yield from (record_episode(job, episode) for episode in episodes)
        return
    # Not forked: encoders and their threads do not survive a fork.
    context = multiprocessing.get_context("spawn")
    processes = min(processes, number)
    with safe_imports(), ProcessPoolExecutor(processes, context, end_with_parent) as pool:
        ahead = (pool.submit(record_episode, job, episode) for episode in episodes)
        with no_interrupts():
            pending = deque(islice(ahead, 2 * processes))
        try:
            while pending:
                recorded = pending.popleft().result()
                pending.extend(islice(ahead, 1))
                yield recorded
        except BaseException:
            _kill(pool)
            raise


def _kill(pool: ProcessPoolExecutor) -> None:
    """End a pool's processes now: to wait for the episodes they are at may take ten seconds."""
    for process in list((pool._processes or {}).values()):
        process.kill()
    pool.shutdown(cancel_futures=True)


def _copy(apart: EpisodeApart, folder: Path) -> EpisodeApart:
    shutil.copytree(apart.folder, folder)
    return replace(apart, folder=folder)


def record_episode(job: EpisodeJob, episode: int) -> EpisodeApart:
    """Return one episode, its videos in a folder of its own."""

    def record() -> EpisodeApart:
        frames = frames_of(job.spec, script_of(job.spec, episode))
        return record_apart(job.folder / str(episode), job.info, job.options, frames)

    try:
        return record()
    except EncoderStalledError:
        return record()  # the same frames go through when they are encoded again
