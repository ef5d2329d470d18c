# SPDX-License-Identifier: Apache-2.0
"""Batches of frames that EpisodeAwareSampler draws from a downloaded dataset."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader

from examples.scaling.feed import StepBatch, action_window, describe_batches
from examples.scaling.options import TrainOptions
from examples.scaling.preemption import STOP_SIGNALS
from examples.scaling.processes import Processes
from robostream import (
    EpisodeAwareSampler,
    LeRobotDataset,
    LeRobotDatasetMetadata,
    load_training_step,
    resume_sampler,
    save_training_step,
)
from robostream.plan import Cursor, Cut

_WORKERS = 4


class MapFeed:
    """A uniform shuffle of all frames; each frame is read and decoded separately.

    Accelerate splits the batches among the processes: each gets whole batches in turn, and the last
    ones are completed with the first frames of the epoch.
    """

    def __init__(self, processes: Processes, options: TrainOptions) -> None:
        self.dataset = dataset = processes.one_after_another(
            lambda revision: _open_dataset(options, revision), options.revision
        )
        self._sampler = EpisodeAwareSampler(
            dataset.meta.episodes["dataset_from_index"],
            dataset.meta.episodes["dataset_to_index"],
            dataset.episodes,
            shuffle=True,
            seed=options.seed,
            absolute_to_relative_idx=dataset.absolute_to_relative_idx,
        )
        workers = _WORKERS if options.num_workers is None else options.num_workers
        loader: DataLoader[Any] = DataLoader(
            dataset,
            options.batch_size,
            sampler=self._sampler,
            num_workers=workers,
            persistent_workers=workers > 0,
            multiprocessing_context="spawn" if workers else None,
            worker_init_fn=_leave_signals_to_trainer,
            pin_memory=processes.accelerator.device.type == "cuda",
            # Torch draws a number for each iterator, and a resumed run makes one iterator more. A
            # separate generator keeps the policy's random numbers the same.
            generator=torch.Generator(),
        )
        self._loader = processes.accelerator.prepare_data_loader(loader, device_placement=False)
        self._cut = Cut(processes.rank, processes.count, options.batch_size, drop_last=False)
        self._cursor = Cursor(0, 0)
        self._seed, self._split = options.seed, options.split

    @property
    def order(self) -> dict[str, Any]:
        """The parameters of the order, for the log of receipts."""
        return {"num_frames": len(self._sampler), "seed": self._seed, "shuffle": "uniform"}

    def batches(self) -> Iterator[StepBatch]:
        """Yield the batches of one epoch after the other, from the current position."""
        frames = len(self._sampler)
        while True:
            epoch = self._cursor.epoch
            # Accelerate counts epochs from 0, which is wrong after a resume.
            self._loader.set_epoch(epoch)
            for found in describe_batches(
                self._loader, self._cut, frames, self._cursor, _count_own
            ):
                ended = found.stop == frames
                self._cursor = Cursor(epoch + 1, 0) if ended else Cursor(epoch, found.stop)
                yield found

    def save(self, folder: Path, step: int) -> None:
        """Write the position after the last yielded batch to a checkpoint.

        The feed counts it, because workers and Accelerate have drawn more frames already.
        """
        save_training_step(
            folder,
            step,
            num_processes=self._cut.world_size,
            batch_size=self._cut.batch_size,
            sampler_state={"epoch": self._cursor.epoch, "start_index": self._cursor.position},
            split=self._split,
        )

    def resume(self, folder: Path) -> None:
        """Continue from a checkpoint, on any number of processes."""
        cut = self._cut
        saved = load_training_step(folder)
        if saved.sampler_state is None:
            raise ValueError(
                f"want a checkpoint of a run with --map_style, found one of a streaming run in "
                f"{folder}; resume without --map_style"
            )
        state = resume_sampler(
            self._sampler, saved, batch_size=cut.batch_size, num_processes=cut.world_size
        )
        self._cursor = Cursor(state["epoch"], state["start_index"])

    def close(self) -> None:
        """End the workers, which end with the loader."""
        del self._loader


def _open_dataset(options: TrainOptions, revision: str | None) -> LeRobotDataset:
    meta = LeRobotDatasetMetadata(options.repo_id, options.root, revision)
    return LeRobotDataset(
        options.repo_id,
        options.root,
        episodes=options.chosen_episodes,
        delta_timestamps=action_window(meta, options.n_action_steps),
        revision=meta.revision,
        return_uint8=True,
    )


def _leave_signals_to_trainer(worker: int) -> None:
    """Ignore the signals of a preempted job, which Slurm sends to all of its processes.

    The training process still finishes a step; its workers end with it.
    """
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _count_own(cut: Cut, num_frames: int, position: int) -> int:
    """Return how many of this process's samples do not pad the end of the epoch. Pure."""
    left = num_frames - position - cut.rank * cut.batch_size
    return min(max(left, 0), cut.batch_size)
