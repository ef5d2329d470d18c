# SPDX-License-Identifier: Apache-2.0
"""A mixture in place of LeRobot's dataset, and the loss of each of its datasets."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch

from robostream.assemble import pool_stats, read_mixture_file
from robostream.errors import SelectionError
from robostream.loader import MixtureDataset, StreamingDataLoader
from robostream.meta import Features, Stats

logger = logging.getLogger(__name__)

# Flags that choose data of one dataset; the file has the same for each of its sources.
_OF_ONE_DATASET = ("root", "episodes", "revision")


@dataclass(frozen=True)
class MixtureMetadata:
    """What LeRobot's command reads of a dataset's metadata."""

    repo_id: str
    features: Features  # of every sample
    stats: Stats  # of all datasets together
    camera_keys: list[str]  # all cameras
    depth_keys: list[str]  # those that measure distance
    # LeRobot divides the steps of windows by it, so they stay steps: frames of each dataset,
    # whatever its rate.
    fps: int = 1
    has_language_columns: bool = False  # a mixture has the text of tasks


class LeRobotMixture(MixtureDataset):
    """A mixture with the attributes that LeRobot's command reads of a dataset."""

    episodes = None

    @property
    def num_episodes(self) -> int:
        """The episodes of all datasets, of which an epoch may have some."""
        return sum(meta.total_episodes for meta in self.metas)

    @cached_property
    def meta(self) -> MixtureMetadata:
        """The metadata of the mixture."""
        parts = zip(self.metas, self.maps, strict=True)
        members = [(meta.repo_id, own, meta.stats) for meta, own in parts]
        cameras = self.schema.cameras
        return MixtureMetadata(
            self.repo_id,
            self.schema.features,
            pool_stats(self.schema, members),
            [camera.key for camera in cameras],
            [camera.key for camera in cameras if camera.is_depth],
        )


def is_mixture(repo_id: str) -> bool:
    """Return whether `--dataset.repo_id` names a mixture's file."""
    return repo_id.endswith((".yaml", ".yml"))


def open_mixture(path: str, **options: Any) -> LeRobotMixture:
    """Return the mixture of a file, for the arguments of LeRobot's streaming class.

    Windows are those of the policy, in frames of each dataset. `frames`, which leaves out the last
    frames of episodes, is for sources that choose none themselves.
    """
    chosen = [name for name in _OF_ONE_DATASET if options.pop(name, None) is not None]
    if chosen:
        raise SelectionError(
            f"--dataset.{chosen[0]} is for one dataset, and {path} describes several: give it to "
            "the sources in that file"
        )
    described, frames = read_mixture_file(path), options.pop("frames", None)
    sources = [
        replace(source, frames=frames) if source.frames is None else source
        for source in described["sources"]
    ]
    asked = options.pop("delta_timestamps", None) or {}
    windows = {key: [round(step) for step in steps] for key, steps in asked.items()}
    given = {"sources": sources, "delta_indices": windows, "delta_timestamps": None}
    return LeRobotMixture(**described | options | given)


class MixtureLoader(StreamingDataLoader):
    """A loader that remembers the datasets of its last batch, which LeRobot's processors drop."""

    last_datasets: torch.Tensor

    def __iter__(self) -> Iterator[dict[str, Any]]:  # type: ignore[override]
        for batch in super().__iter__():
            self.last_datasets = batch["dataset_index"]
            yield batch


def log_losses(
    step: int, policy: Any, batch: Mapping[str, Any], loader: MixtureLoader, accelerator: Any
) -> None:
    """Log the policy's loss on each dataset's samples of a batch, over all processes.

    LeRobot's policies return the mean of a batch. So the samples of each dataset pass through the
    policy once more, without gradients; its buffers and random numbers stay as they were.
    """
    mixture = loader.dataset
    assert isinstance(mixture, MixtureDataset)
    sums = torch.zeros(2, len(mixture.shares), device=accelerator.device)
    model = accelerator.unwrap_model(policy)
    kept = {name: buffer.clone() for name, buffer in model.named_buffers()}
    gpus = [accelerator.device] if accelerator.device.type == "cuda" else []
    with torch.no_grad(), torch.random.fork_rng(gpus), accelerator.autocast():
        for dataset in sorted({*loader.last_datasets.tolist()}):
            rows = (loader.last_datasets == dataset).nonzero().flatten().tolist()
            loss, _ = model.forward(_take(batch, rows, len(loader.last_datasets)))
            sums[:, dataset] += torch.stack([loss * len(rows), torch.tensor(len(rows)).to(loss)])
        for name, buffer in model.named_buffers():
            buffer.copy_(kept[name])
    losses, counts = accelerator.reduce(sums, reduction="sum").tolist()
    if accelerator.is_main_process:
        found = zip(mixture.shares, losses, counts, strict=True)
        parts = [f"{share.name} {loss / count:.3f}" for share, loss, count in found if count]
        logger.info("step:%d loss by dataset: %s", step, ", ".join(parts))


def _take(batch: Mapping[str, Any], rows: list[int], size: int) -> dict[str, Any]:
    """Return some samples of a batch."""
    taken = dict(batch)
    for key, values in batch.items():
        if isinstance(values, torch.Tensor) and values.ndim and len(values) == size:
            taken[key] = values[rows]
        elif isinstance(values, list) and len(values) == size:
            taken[key] = [values[row] for row in rows]
    return taken
