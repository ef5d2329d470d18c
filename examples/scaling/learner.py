# SPDX-License-Identifier: Apache-2.0
"""The policy, its optimizer and its learning rate schedule, and their checkpoints."""

from __future__ import annotations

import random
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate.utils import set_seed
from torch import Tensor, nn

from examples.act import ActConfig, ActPolicy, Batch, Interface, interface_of
from examples.scaling.checkpoint import read_policy_config, write_policy_config
from examples.scaling.feed import TrainingData
from examples.scaling.files import read_tensors, write_tensors
from examples.scaling.options import TrainOptions
from examples.scaling.processes import Processes
from robostream import MixtureDataset, Normalizer

_MODEL, _OPTIMIZER, _SCHEDULE = "model.pt", "optimizer.pt", "scheduler.pt"
_RANDOM = "random.pt"
_MAX_GRADIENT_NORM = 10.0


class Learner:
    """Trains a policy on this process's device, together with all processes."""

    def __init__(self, processes: Processes, options: TrainOptions, dataset: TrainingData) -> None:
        set_seed(options.seed)
        self._processes = processes
        policy = DummyPolicy() if options.dummy else make_policy(options.policy, dataset)
        self._normalizer: Normalizer | None = None
        if isinstance(policy, ActPolicy) and isinstance(dataset, MixtureDataset):
            self._normalizer = make_normalizer(policy.interface, dataset)
        optimizer = torch.optim.Adam(policy.parameters(), options.learning_rate)
        self._model, self._optimizer = processes.accelerator.prepare(policy, optimizer)
        # Not prepared: Accelerate would step a schedule once for each process.
        self._schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: min(1.0, (step + 1) / max(1, options.warmup_steps))
        )
        # From here on, each process draws its own random numbers.
        set_seed(options.seed, device_specific=True)

    def learn(self, batch: Batch) -> dict[str, Tensor]:
        """Take one step; return this process's losses, and those of its samples, on its device."""
        accelerator = self._processes.accelerator
        batch = to_device(batch, accelerator.device)
        if self._normalizer is not None:
            batch = self._normalizer(batch)
        losses: dict[str, Tensor] = self._model(batch)
        accelerator.backward(losses["loss"])
        accelerator.clip_grad_norm_(self._model.parameters(), _MAX_GRADIENT_NORM)
        self._optimizer.step()
        self._optimizer.zero_grad()
        self._schedule.step()
        return {name: value.detach() for name, value in losses.items()}

    @property
    def rate(self) -> float:
        """The learning rate of the next step."""
        return float(self._schedule.get_last_lr()[0])

    @property
    def policy(self) -> nn.Module:
        """The policy without Accelerate's wrapper."""
        policy: nn.Module = self._processes.accelerator.unwrap_model(self._model)
        return policy

    def save(self, folder: Path, random_states: list[dict[str, Any]]) -> None:
        """Write the training state to a checkpoint; in the main process only."""
        write_tensors(folder / _MODEL, self.policy.state_dict())
        scaler = self._processes.accelerator.scaler  # for fp16 only
        write_tensors(
            folder / _OPTIMIZER,
            {
                "optimizer": self._optimizer.state_dict(),
                "scaler": None if scaler is None else scaler.state_dict(),
            },
        )
        write_tensors(folder / _SCHEDULE, self._schedule.state_dict())
        write_tensors(folder / _RANDOM, random_states)
        if isinstance(self.policy, ActPolicy):
            sizes, shapes = asdict(self.policy.config), asdict(self.policy.interface)
            write_policy_config(folder, sizes, shapes)

    def resume(self, folder: Path) -> None:
        """Load the training state of a checkpoint.

        Processes that the saved run did not have keep their own random state.
        """
        parameters = read_tensors(folder / _MODEL)
        try:
            self.policy.load_state_dict(parameters)
        except RuntimeError:
            raise ValueError(
                f"want a checkpoint of this run's policy, found another policy in {folder}; was it "
                "written with --dummy, or with other sizes? Use the same flags, or choose another "
                "--output_dir."
            ) from None  # torch's message lists every parameter
        saved = read_tensors(folder / _OPTIMIZER)
        self._optimizer.load_state_dict(saved["optimizer"])
        if saved["scaler"] is not None and self._processes.accelerator.scaler is not None:
            self._processes.accelerator.scaler.load_state_dict(saved["scaler"])
        self._schedule.load_state_dict(read_tensors(folder / _SCHEDULE))
        states = read_tensors(folder / _RANDOM)
        if self._processes.rank < len(states):
            set_random_state(states[self._processes.rank])


class DummyPolicy(nn.Module):
    """A policy without parameters to train, for runs that only read data."""

    def __init__(self) -> None:
        super().__init__()
        self.nothing = nn.Parameter(torch.zeros(()))

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """Return a loss of 0."""
        return {"loss": self.nothing * 0}


def make_policy(config: ActConfig, dataset: TrainingData) -> ActPolicy:
    """Return a new policy for a dataset, or for a mixture, which a Normalizer normalises."""
    if isinstance(dataset, MixtureDataset):
        schema = dataset.schema
        seen = [camera.key for camera in schema.cameras if not camera.is_depth]
        return ActPolicy(config, interface_of(schema.features, seen))
    meta = dataset.meta
    depth = set(meta.depth_keys)
    cameras = [key for key in meta.camera_keys if key not in depth]
    policy = ActPolicy(config, interface_of(meta.features, cameras))
    policy.learn_scales(meta.stats)
    return policy


def make_normalizer(interface: Interface, mixture: MixtureDataset) -> Normalizer:
    """Return what normalises the batches of a mixture, each sample by its robot's statistics."""
    keys = ("observation.state", "action", *interface.cameras)
    return Normalizer(mixture.stats, dict.fromkeys(keys, "mean_std"))


def load_policy(folder: Path) -> ActPolicy:
    """Return the policy of a checkpoint, ready to predict."""
    sizes, shapes = (read_policy_config(folder, entry) for entry in ("config", "interface"))
    if sizes is None or shapes is None:
        raise ValueError(f"want a checkpoint with a policy, found none in {folder}")
    shapes["cameras"] = tuple(shapes["cameras"])
    policy = ActPolicy(ActConfig(**sizes), Interface(**shapes))
    policy.load_state_dict(read_tensors(folder / _MODEL))
    return policy.eval()


def random_state() -> dict[str, Any]:
    """Return the state of all random generators of this process."""
    numpy = np.random.get_state(legacy=False)
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state() if torch.cuda.is_available() else None,
        "python": random.getstate(),
        "numpy": numpy | {"state": numpy["state"] | {"key": numpy["state"]["key"].tolist()}},
    }


def set_random_state(state: dict[str, Any]) -> None:
    """Set all random generators of this process."""
    torch.set_rng_state(state["torch"])
    if state["cuda"] is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])
    version, numbers, spare = state["python"]
    random.setstate((version, tuple(numbers), spare))
    np.random.set_state(state["numpy"])


def to_device(batch: Batch, device: torch.device) -> dict[str, Any]:
    """Return a batch with its tensors on a device."""
    return {
        key: value.to(device, non_blocking=True) if isinstance(value, Tensor) else value
        for key, value in batch.items()
    }
