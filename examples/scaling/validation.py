# SPDX-License-Identifier: Apache-2.0
"""The policy's error on episodes that it is not trained on."""

from __future__ import annotations

import logging
from pathlib import Path

import torch
from torch import nn

from examples.act import ActPolicy
from examples.scaling.feed import TrainingData, action_window, describe_batches
from examples.scaling.files import LineLog
from examples.scaling.learner import to_device
from examples.scaling.options import TrainOptions
from examples.scaling.processes import Processes
from examples.scaling.stream_feed import count_own
from robostream import (
    EpisodeSplit,
    LeRobotDatasetMetadata,
    MixtureDataset,
    StreamingDataLoader,
    StreamingLeRobotDataset,
    check_no_leakage,
    load_training_step,
    split_episodes,
)
from robostream.plan import Cursor, Cut

logger = logging.getLogger(__name__)


def choose_split(options: TrainOptions, checkpoint: Path | None) -> EpisodeSplit | None:
    """Return the episodes to train and to validate on: the checkpoint's, else those of `val`."""
    saved = None if checkpoint is None else load_training_step(checkpoint).split
    if saved is not None or options.val == 0:
        return saved
    meta = LeRobotDatasetMetadata(options.repo_id, options.root, options.revision)
    return split_episodes(meta, options.val, options.seed, episodes=options.chosen_episodes)


class Validation:
    """Measures the policy on the held-out episodes, in their order, over all processes."""

    def __init__(
        self,
        processes: Processes,
        options: TrainOptions,
        trained_on: TrainingData,
        log: LineLog | None,
    ) -> None:
        assert options.split is not None
        assert not isinstance(trained_on, MixtureDataset)  # has no split
        self._processes, self._log = processes, log
        self._workers = options.num_workers
        self._cut = Cut(processes.rank, processes.count, options.batch_size, drop_last=False)
        self._stream = StreamingLeRobotDataset(
            options.repo_id,
            options.root,
            episodes=options.split.val,
            delta_timestamps=action_window(trained_on.meta, options.n_action_steps),
            revision=trained_on.revision,
            return_uint8=True,
            shuffle=False,
        )
        check_no_leakage(trained_on, self._stream)

    def report(self, step: int, policy: nn.Module) -> None:
        """Log the mean error of predicted actions, in standard deviations. Blocks."""
        assert isinstance(policy, ActPolicy)
        policy.eval()
        error, actions = self._processes.add_up_floats(*self._measure(policy))
        policy.train()
        if self._log is not None:
            self._log.write({"step": step, "val_error": error / actions, "actions": int(actions)})
            logger.info("step %d: validation error %.4f", step, error / actions)

    def _measure(self, policy: ActPolicy) -> tuple[float, int]:
        """Return the sum of errors of this process's samples, and the number of actions."""
        loader = StreamingDataLoader(self._stream, self._cut.batch_size, num_workers=self._workers)
        frames, device = self._stream.num_frames, self._processes.accelerator.device
        error, actions = torch.zeros((), dtype=torch.float64), 0
        for found in describe_batches(loader, self._cut, frames, Cursor(0, 0), count_own):
            errors = policy.errors(to_device(found.batch, device))[: found.own]
            error += errors.sum().double().cpu()
            actions += int((~found.batch["action_is_pad"][: found.own]).sum())
        loader.close()  # its workers would idle until the next report
        return float(error), actions
