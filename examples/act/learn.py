# SPDX-License-Identifier: Apache-2.0
"""Show that ACT learns: train it on synthetic episodes and evaluate it on held-out ones.

  python examples/act/learn.py                        makes a dataset of a simulated arm
  python examples/act/learn.py --root DATASET         a fifth of its episodes is held out

Prints the mean error of predicted actions, in standard deviations of each joint, beside two
baselines: always predicting the mean action, and predicting that the arm does not move.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
from torch import Tensor

from examples.act.config import ActConfig
from examples.act.policy import ActPolicy, Batch
from examples.scaling.feed import action_window
from examples.scaling.learner import load_policy
from examples.scaling.options import TrainOptions
from examples.scaling.preemption import REQUEUE
from examples.scaling.processes import fail, use_half_of_the_cores
from examples.scaling.training import train
from examples.synthetic import make_dataset
from robostream import (
    LeRobotDatasetMetadata,
    RobostreamError,
    StreamingDataLoader,
    StreamingLeRobotDataset,
    load_training_step,
)

# Small enough for a laptop's CPU; a policy for a real robot has the defaults of `ActConfig`.
_CHUNK = 8
_SIZES = {"width": 64, "heads": 4, "feedforward": 128, "encoder_layers": 2, "backbone_width": 16}


@dataclass(frozen=True, slots=True)
class Errors:
    """Mean absolute errors of predicted actions, in standard deviations.

    Attributes:
        policy: The policy's error.
        mean: The error of always predicting the mean action.
        still: The error of predicting that the arm does not move.
        actions: The number of predicted actions.
    """

    policy: float
    mean: float
    still: float
    actions: int


def main(arguments: Sequence[str] | None = None) -> int:
    """Train, evaluate and print the errors."""
    options = _parse(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    use_half_of_the_cores()
    try:
        return _learn(options)
    except (RobostreamError, ValueError, OSError) as error:
        return fail(error)


def _learn(options: argparse.Namespace) -> int:
    root = options.root or make_episodes(options)
    check(LeRobotDatasetMetadata("dataset", root))
    outcome = train(
        TrainOptions(
            repo_id="dataset",
            root=str(root),
            val=0.2,
            output_dir=options.output_dir / "run",
            steps=options.steps,
            batch_size=32,
            n_action_steps=_CHUNK,
            save_freq=options.steps,
            resume_from="latest",
            learning_rate=1e-3,
            warmup_steps=options.steps // 8,
            policy=ActConfig(chunk=_CHUNK, **_SIZES),
        )
    )
    if not outcome.is_finished:
        return REQUEUE
    split = load_training_step(outcome.checkpoint).split
    assert split is not None
    errors = measure(load_policy(outcome.checkpoint), root, split.val)
    print(json.dumps(asdict(errors)) if options.json else _describe(errors, len(split.val)))
    return 0


def make_episodes(options: argparse.Namespace) -> Path:
    """Make a dataset of an arm that puts an object into a dish, unless it exists."""
    side = options.image_side_px
    dest: Path = options.output_dir / f"{options.episodes}-episodes-{side}px"
    if dest.exists():
        return dest
    return make_dataset(
        dest,
        episodes=options.episodes,
        frames="30:40",
        tasks=1,
        cameras=2,
        size=f"{side}x{side}",
    )


def check(meta: LeRobotDatasetMetadata) -> None:
    """Raise ValueError unless states and actions have the same shape, as the baseline needs."""
    state, action = (meta.features[key]["shape"] for key in ("observation.state", "action"))
    if tuple(state) != tuple(action):
        raise ValueError(
            "want a dataset whose actions are the joints to reach next, found "
            f"{state} numbers of state and {action} of action in {meta.root}"
        )


def measure(policy: ActPolicy, root: Path, episodes: Sequence[int]) -> Errors:
    """Return the errors of a policy and of the baselines on some episodes of a dataset."""
    meta = LeRobotDatasetMetadata("dataset", root)
    stream = StreamingLeRobotDataset(
        "dataset",
        root,
        episodes=episodes,
        delta_timestamps=action_window(meta, policy.config.chunk),
        return_uint8=True,
        shuffle=False,
    )
    sums, actions = torch.zeros(3), 0
    with torch.no_grad():
        for batch in StreamingDataLoader(stream, 64, num_workers=0):
            sums += torch.stack([errors.sum() for errors in _errors(policy, batch)])
            actions += int((~batch["action_is_pad"]).sum())
    of_policy, of_mean, of_still = (sums / actions).tolist()
    return Errors(of_policy, of_mean, of_still, actions)


def _errors(policy: ActPolicy, batch: Batch) -> list[Tensor]:
    """Return the error of each action for the policy and for each baseline."""
    scale, there = policy.action_scale, ~batch["action_is_pad"]
    wanted = scale(batch["action"])
    still = scale(batch["observation.state"])[:, None]
    guesses = (torch.zeros_like(wanted), still)
    baselines = [(guess - wanted).abs().mean(-1) * there for guess in guesses]
    return [policy.errors(batch), *baselines]


def _describe(errors: Errors, held_out: int) -> str:
    return (
        f"{errors.actions} actions of {held_out} held-out episodes; mean error in standard "
        f"deviations:\n"
        f"  ACT               {errors.policy:.3f}\n"
        f"  the mean action   {errors.mean:.3f}\n"
        f"  staying still     {errors.still:.3f}"
    )


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--root", type=Path, help="a dataset (default: one made in --output_dir)")
    add("--episodes", type=int, default=60, help="how many to make (%(default)s)")
    add("--image_side_px", type=int, default=64, help="image size of a made dataset (%(default)s)")
    add("--steps", type=int, default=800, help="(%(default)s)")
    add("--output_dir", type=Path, default=Path("outputs/act_learns"), help="(%(default)s)")
    add("--json", action="store_true", help="print the errors as JSON")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
