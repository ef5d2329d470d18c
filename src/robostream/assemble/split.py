# SPDX-License-Identifier: Apache-2.0
"""Episodes split into a training and a validation half, the same on every machine."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from robostream import arguments, config
from robostream.assemble.selection import select_episodes, shorten
from robostream.errors import SelectionError
from robostream.meta import LeRobotDatasetMetadata
from robostream.plan import Ints, permute, stream

# Labels of the pseudo-random streams of a split: one for episodes, one for where it begins.
_EPISODES, _START = 1, 2


class EpisodeSplit(NamedTuple):
    """The episodes to train on and those to validate on, each in ascending order.

    Attributes:
        train: The episodes to train on.
        val: The episodes to validate on.
    """

    train: list[int]
    val: list[int]


class EpisodeReader(Protocol):
    """A dataset or stream that reads some episodes of a dataset; None means all of them."""

    meta: LeRobotDatasetMetadata

    @property
    def episodes(self) -> list[int] | None:
        """The selected episodes."""


def split_episodes(
    meta: LeRobotDatasetMetadata,
    val: float = 0.1,
    seed: int = config.SEED,
    by: str | None = "task",
    *,
    episodes: Sequence[int] | None = None,
) -> EpisodeSplit:
    """Return a split of a dataset's episodes into `train` and `val`.

    It is a function of the episodes, their tasks and the arguments alone: every process, machine
    and later run gets the same split. Save it with `save_training_step(..., split=split)`, so that
    a run keeps it if its dataset grows.

    Args:
        meta: The dataset's metadata.
        val: The share of episodes to validate on, above 0 and below 1. Each half has at least one
            episode.
        seed: Another seed gives another split. LeRobot's `eval_split` has none: it holds out the
            last episodes of each task, which are not these.
        by: "task" splits the episodes of each task in the same proportion, to within one episode;
            a task of few episodes may have none to validate on, and that of a single episode may
            be in either half. None ignores tasks.
        episodes: Split these only; None for all.
    """
    if by not in ("task", None):
        raise SelectionError(f'by must be "task" or None; got {by!r}')
    if not 0 < arguments.number(val, "val") < 1:
        raise SelectionError(f"val must be a share above 0 and below 1; got {val!r}")
    seed = arguments.whole_number(seed, "seed", least=0)
    chosen = select_episodes(meta, episodes, None)
    if len(chosen) < 2:
        raise SelectionError(
            f"want 2 episodes or more to split, one for each half; got {len(chosen)} of "
            f"{meta.repo_id}"
        )
    held_out = min(max(round(val * len(chosen)), 1), len(chosen) - 1)
    order = np.argsort(permute(chosen, meta.total_episodes, stream(seed, _EPISODES)))
    if by == "task":  # episodes of the same tasks side by side, still in random order
        order = order[np.argsort(_task_keys(meta, chosen, seed)[order], kind="stable")]
    is_val = np.zeros(len(chosen), bool)
    is_val[order] = _spread(len(chosen), held_out, stream(seed, _START) % len(chosen))
    return EpisodeSplit(chosen[~is_val].tolist(), chosen[is_val].tolist())


def check_no_leakage(
    train: EpisodeReader | Sequence[int], val: EpisodeReader | Sequence[int]
) -> None:
    """Raise SelectionError if an episode to train on is also one to validate on.

    Args:
        train: A dataset, a stream, or a list of episodes.
        val: The same. Readers of different datasets share no episode.
    """
    fingerprints = {reader.meta.fingerprint for reader in (train, val) if hasattr(reader, "meta")}
    shared = sorted(_numbers(train, "train") & _numbers(val, "val"))
    if shared and len(fingerprints) < 2:
        raise SelectionError(
            f"want episodes to validate on that are not trained on, found {shorten(shared)} in "
            "both; split_episodes gives two halves that share none"
        )


def _numbers(reader: EpisodeReader | Sequence[int], name: str) -> set[int]:
    if isinstance(reader, Sequence) or not hasattr(reader, "meta"):
        return set(arguments.whole_numbers(reader, name))
    chosen = reader.episodes
    return set(range(reader.meta.total_episodes) if chosen is None else chosen)


def _spread(count: int, held_out: int, start: int) -> npt.NDArray[np.bool_]:
    """Return which of `count` places to hold out, evenly spaced. Pure.

    Any run of n places has floor or ceil of n * held_out / count of them, which is what makes each
    task's share right to within one episode.
    """
    steps = (np.arange(count + 1, dtype=np.int64) * held_out + start) // count
    return np.diff(steps) > 0


def _task_keys(meta: LeRobotDatasetMetadata, episodes: Ints, seed: int) -> Ints:
    """Return a number per episode, equal for those with the same tasks."""
    if "tasks" not in meta.episodes.columns:
        raise SelectionError(
            f"{meta.repo_id} has no column 'tasks' in its episode table; pass by=None to split "
            "without regard to tasks"
        )
    tasks = meta.episodes["tasks"]
    texts = ["\0".join(sorted(tasks[episode] or ())) for episode in episodes]
    keys: dict[str, int] = {}
    for text in set(texts):
        digest = hashlib.blake2b(f"{seed}\0{text}".encode(), digest_size=8).digest()
        keys[text] = int.from_bytes(digest, "little", signed=True)
    return np.array([keys[text] for text in texts])
