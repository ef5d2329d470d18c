# SPDX-License-Identifier: Apache-2.0
"""Batches streamed in the one order that any number of processes share."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from examples.scaling.feed import BatchBuilder, action_window, deliver
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
# What of a state says which order it is of; the rest says where in it the run stands.
_ORDER = ("fingerprint", "selection", "num_frames", "seed", "lanes", "pool_size", "shuffle")


class StreamFeed:
    """Every frame exactly once per epoch, over all processes.

    The loader is not handed to `accelerator.prepare`. The stream gives each process its own share
    already; Accelerate does not know that and would split these batches again, or read them all in
    the main process and send them around.
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
        """What the order is made of, for the log of receipts."""
        state = self._loader.state_dict()
        return {name: state[name] for name in _ORDER}

    def deliveries(self) -> Iterator[BatchBuilder]:
        """Yield batch after batch, epoch after epoch, from where the loader stands."""
        frames = self._stream.num_frames
        while True:
            state = self._loader.state_dict()
            cursor = Cursor(state["epoch"], state["position"])
            yield from deliver(self._loader, self._cut, frames, cursor, _count_own)

    def save(self, folder: Path, step: int) -> None:
        """Write into a checkpoint where the run stands after its last delivery."""
        write_json(folder / _STATE, self._loader.state_dict())
        cut = self._cut
        save_training_step(folder, step, num_processes=cut.world_size, batch_size=cut.batch_size)

    def resume(self, folder: Path) -> None:
        """Go on where a checkpoint stands, on any number of processes."""
        try:
            text = (folder / _STATE).read_text()
        except FileNotFoundError as error:
            raise ValueError(
                f"want the checkpoint of a streaming run, found no {_STATE} in {folder}; was it "
                "written with --map_style? Then resume with it too."
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
    """Return how many of this process's samples are no completion of the tail. Pure."""
    return sum(at < num_frames for at in step_positions(cut, num_frames, position, 0))
