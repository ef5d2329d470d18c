# SPDX-License-Identifier: Apache-2.0
"""Batches streamed in the order that all processes share."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from examples.scaling.feed import StepBatch, action_window, describe_batches
from examples.scaling.files import write_json
from examples.scaling.options import TrainOptions
from examples.scaling.processes import Processes
from robostream import (
    LeRobotDatasetMetadata,
    StreamingDataLoader,
    StreamingLeRobotDataset,
    save_training_step,
)
from robostream.plan import Cursor, Cut, step_positions

_STATE = "loader_state.json"
# The entries of a state that define the order; the others are the position in it.
_ORDER = ("fingerprint", "selection", "num_frames", "seed", "lanes", "pool_size", "shuffle")


class StreamFeed:
    """Every frame exactly once per epoch, over all processes.

    The loader is not passed to `accelerator.prepare`: the stream already gives each process its
    share.
    """

    def __init__(self, processes: Processes, options: TrainOptions) -> None:
        self._stream = processes.one_after_another(
            lambda revision: _open_stream(options, revision), options.revision
        )
        device = processes.accelerator.device
        self._loader = StreamingDataLoader(
            self._stream,
            options.batch_size,
            num_workers=options.num_workers,
            device=device if device.type == "cuda" else None,
        )
        self._cut = Cut(processes.rank, processes.count, options.batch_size, drop_last=False)
        self.meta = self._stream.meta

    @property
    def order(self) -> dict[str, Any]:
        """The parameters of the order, for the log of receipts."""
        state = self._loader.state_dict()
        return {name: state[name] for name in _ORDER}

    def batches(self) -> Iterator[StepBatch]:
        """Yield the batches of one epoch after the other, from the current position."""
        frames = self._stream.num_frames
        while True:
            state = self._loader.state_dict()
            cursor = Cursor(state["epoch"], state["position"])
            yield from describe_batches(self._loader, self._cut, frames, cursor, _count_own)

    def save(self, folder: Path, step: int) -> None:
        """Write the position after the last yielded batch to a checkpoint."""
        write_json(folder / _STATE, self._loader.state_dict())
        cut = self._cut
        save_training_step(folder, step, num_processes=cut.world_size, batch_size=cut.batch_size)

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


def _count_own(cut: Cut, num_frames: int, position: int) -> int:
    """Return how many of this process's samples do not pad the end of the epoch. Pure."""
    return sum(at < num_frames for at in step_positions(cut, num_frames, position, 0))
