# SPDX-License-Identifier: Apache-2.0
"""Batches streamed in the order that all processes share."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from examples.scaling.feed import StepBatch, action_window, describe_batches
from examples.scaling.files import write_json
from examples.scaling.options import TrainOptions
from examples.scaling.processes import Processes
from robostream import (
    LeRobotDatasetMetadata,
    MixtureDataset,
    StreamingDataLoader,
    StreamingLeRobotDataset,
    save_training_step,
)
from robostream.plan import Cursor, Cut, step_positions

_STATE = "loader_state.json"
# The entries of a state that define the order; the others are the position in it.
_ORDER = ("fingerprint", "selection", "num_frames", "seed", "lanes", "pool_size", "shuffle")


class StreamFeed:
    """Every frame exactly once per epoch, over all processes; a mixture in its shares.

    The loader is not passed to `accelerator.prepare`: the stream already gives each process its
    share.
    """

    def __init__(self, processes: Processes, options: TrainOptions) -> None:
        self.dataset: StreamingLeRobotDataset | MixtureDataset
        self._first_episodes: torch.Tensor | None = None
        if options.mixture is None:
            self.dataset = processes.one_after_another(
                lambda revision: _open_stream(options, revision), options.revision
            )
        else:
            self.dataset = _open_mixture(processes, options)
            totals = [0, *(meta.total_episodes for meta in self.dataset.metas)]
            self._first_episodes = torch.tensor(totals).cumsum(0)
        device = processes.accelerator.device
        self._loader = StreamingDataLoader(
            self.dataset,
            options.batch_size,
            num_workers=options.num_workers,
            device=device if device.type == "cuda" else None,
        )
        self._cut = Cut(processes.rank, processes.count, options.batch_size, drop_last=False)
        self._split = options.split

    @property
    def order(self) -> dict[str, Any]:
        """The parameters of the order, for the log of receipts."""
        state = self._loader.state_dict()
        return {name: state[name] for name in _ORDER}

    def batches(self) -> Iterator[StepBatch]:
        """Yield the batches of one epoch after the other, from the current position."""
        frames = self.dataset.num_frames
        while True:
            state = self._loader.state_dict()
            cursor = Cursor(state["epoch"], state["position"])
            for found in describe_batches(self._loader, self._cut, frames, cursor, count_own):
                yield found._replace(first_episodes=self._first_episodes)

    def save(self, folder: Path, step: int) -> None:
        """Write the position after the last yielded batch to a checkpoint."""
        write_json(folder / _STATE, self._loader.state_dict())
        save_training_step(
            folder,
            step,
            num_processes=self._cut.world_size,
            batch_size=self._cut.batch_size,
            split=self._split,
        )

    def resume(self, folder: Path) -> None:
        """Continue from a checkpoint, on any number of processes."""
        try:
            text = (folder / _STATE).read_text()
        except FileNotFoundError as error:
            raise ValueError(
                f"want a checkpoint of a streaming run, found no {_STATE} in {folder}. If it was "
                "written with --map_style, resume with --map_style."
            ) from error
        self._loader.load_state_dict(json.loads(text))

    def close(self) -> None:
        """End the workers."""
        self._loader.close()


def _open_stream(options: TrainOptions, revision: str | None) -> StreamingLeRobotDataset:
    meta = LeRobotDatasetMetadata(options.repo_id, options.root, revision)
    return StreamingLeRobotDataset(
        options.repo_id,
        options.root,
        episodes=options.chosen_episodes,
        delta_timestamps=action_window(meta, options.n_action_steps),
        revision=meta.revision,
        episode_pool_size=options.episode_pool_size,
        seed=options.seed,
        return_uint8=True,  # a quarter of the bytes; the policy converts on its own device
        video_decoder_cache_size=options.video_decoder_cache_size,
        frame_cache_bytes=options.frame_cache_bytes,
        frame_cache_dir=options.frame_cache_dir,
    )


def _open_mixture(processes: Processes, options: TrainOptions) -> MixtureDataset:
    """Return the mixture of a file. Windows and normalisation are the policy's, not the file's."""
    assert options.mixture is not None
    with processes.accelerator.local_main_process_first():
        mixture = MixtureDataset.from_file(
            options.mixture,
            delta_indices={"action": list(range(options.n_action_steps))},
            delta_timestamps=None,
            normalize=None,
            episode_pool_size=options.episode_pool_size,
            seed=options.seed,
            return_uint8=True,
            frame_cache_bytes=options.frame_cache_bytes,
            frame_cache_dir=options.frame_cache_dir,
        )
    found = processes.gather(mixture.state_dict()["fingerprint"])
    if len(set(found)) > 1:
        raise ValueError(
            f"want the same datasets in all processes, found others: one of {options.mixture} was "
            "changed meanwhile. Start again, or give each source a revision."
        )
    return mixture


def count_own(cut: Cut, num_frames: int, position: int) -> int:
    """Return how many of this process's samples do not pad the end of the epoch. Pure."""
    return sum(at < num_frames for at in step_positions(cut, num_frames, position, 0))
