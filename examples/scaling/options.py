# SPDX-License-Identifier: Apache-2.0
"""The flags of the training program, as a record."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from examples.act import ActConfig
from examples.scaling.checkpoint import choose_checkpoint, read_policy_config
from robostream import EpisodeSplit, RobostreamError

_OF_ONE_DATASET = ("root", "revision", "episodes", "val", "map_style")


@dataclass(frozen=True, slots=True)
class TrainOptions:
    """The options of a training run.

    Attributes:
        repo_id: The dataset's name on the Hub; with `root` it is only a name.
        root: The dataset's folder or URL.
        revision: Hub branch, tag or commit; all processes read the same commit.
        mixture: A mixture of datasets in YAML, instead of one dataset.
        episodes: Episodes [start, stop) to train on; None for all.
        val: The share of these episodes to validate on instead; 0 for none.
        split: Both halves of the episodes, chosen by `train`.
        output_dir: For checkpoints and logs. All nodes must see the same folder.
        steps: Total optimizer steps, including those before a resume.
        batch_size: Samples per process and step.
        num_workers: Worker processes per training process; None for its share of the cores.
        episode_pool_size: Episodes mixed at a time.
        video_decoder_cache_size: How many video indexes to keep in memory.
        frame_cache_bytes: Memory for decoded frames per process.
        frame_cache_dir: A folder on a fast disk for all decoded frames, instead.
        n_action_steps: Actions that the policy predicts at once.
        save_freq: Steps between checkpoints.
        keep_checkpoints: How many of the latest checkpoints to keep.
        log_freq: Steps between lines of the log.
        resume_from: A checkpoint's folder, or "latest" for the last one in `output_dir`, if any.
        dummy: Read data without training.
        map_style: Draw frames at random from all of the dataset instead of streaming it.
        mixed_precision: "no", "bf16" or "fp16"; None for the launcher's choice.
        learning_rate: Learning rate of Adam.
        warmup_steps: Steps over which the learning rate rises from 0.
        seed: Seed of the data order and of the policy's random numbers.
        policy: The sizes of the policy; its chunk is `n_action_steps`.
    """

    repo_id: str = "lerobot/droid_1.0.1"
    root: str | None = None
    revision: str | None = None
    mixture: Path | None = None
    episodes: tuple[int, int] | None = None
    val: float = 0.0
    split: EpisodeSplit | None = None
    output_dir: Path = Path("outputs/train/streaming_multinode")
    steps: int = 1000
    batch_size: int = 64
    num_workers: int | None = None
    episode_pool_size: int = 64
    video_decoder_cache_size: int | None = None
    frame_cache_bytes: str = "auto"
    frame_cache_dir: Path | None = None
    n_action_steps: int = 16
    save_freq: int = 200
    keep_checkpoints: int = 3
    log_freq: int = 20
    resume_from: str | None = None
    dummy: bool = False
    map_style: bool = False
    mixed_precision: str | None = None
    learning_rate: float = 1e-4
    warmup_steps: int = 100
    seed: int = 42  # the default of streams and of `robostream order`
    policy: ActConfig = field(default_factory=ActConfig)

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "n_action_steps", "save_freq", "log_freq"):
            if getattr(self, name) < 1:
                raise ValueError(f"want {name} of 1 or more, got {getattr(self, name)}")
        if self.keep_checkpoints < 1:
            raise ValueError(f"want to keep 1 checkpoint or more, got {self.keep_checkpoints}")
        of_one = [name for name in _OF_ONE_DATASET if getattr(self, name)]
        if self.mixture is not None and of_one:
            raise ValueError(
                f"--{of_one[0]} is for one dataset, and {self.mixture} describes several: leave it "
                "out. The file may select episodes and revisions."
            )

    @property
    def chosen_episodes(self) -> list[int] | None:
        """The episodes to train on; None for all."""
        if self.split is not None:
            return self.split.train
        return None if self.episodes is None else list(range(*self.episodes))


def parse_options(arguments: Sequence[str] | None, doc: str | None) -> TrainOptions:
    """Return the options of a command line."""
    usual = TrainOptions()
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    _add_data(parser, usual)
    _add_run(parser, usual)
    _add_policy(parser, usual)
    values = vars(parser.parse_args(arguments))
    names = {"chunk": "n_action_steps"} | {name: name for name in _SIZES}
    given = {size: values.pop(name) for size, name in names.items()}
    try:
        policy = _choose_sizes(
            given, choose_checkpoint(values["resume_from"], values["output_dir"])
        )
        return TrainOptions(**values, n_action_steps=policy.chunk, policy=policy)
    except (RobostreamError, ValueError) as error:
        parser.exit(2, f"{parser.prog}: {error}\n")


def _choose_sizes(given: Mapping[str, int | None], checkpoint: Path | None) -> ActConfig:
    """Return the policy's sizes: those of the checkpoint to resume from, else the flags'."""
    asked = {name: size for name, size in given.items() if size is not None}
    saved = None if checkpoint is None else read_policy_config(checkpoint)
    if saved is None:
        return ActConfig(**{"chunk": TrainOptions().n_action_steps} | asked)
    for name, size in asked.items():
        if saved[name] != size:
            flag = "n_action_steps" if name == "chunk" else name
            raise ValueError(
                f"want the policy that this run began with, {flag}={saved[name]} ({checkpoint}), "
                f"got --{flag} {size}. Leave the flag out, or choose another --output_dir."
            )
    return ActConfig(**saved)


def _add_data(parser: argparse.ArgumentParser, usual: TrainOptions) -> None:
    add = parser.add_argument_group("data").add_argument
    add("--repo_id", default=usual.repo_id, help="name on the Hub (%(default)s)")
    add("--root", help="folder or URL of the dataset, instead of the Hub")
    add("--revision", help="Hub branch, tag or commit")
    add("--mixture", type=Path, metavar="FILE", help="several datasets, described in YAML")
    add("--episodes", type=_range, metavar="START:STOP", help="train on these only")
    add("--val", type=float, default=usual.val, help="validate on this share (%(default)s)")
    add("--batch_size", type=int, default=usual.batch_size, help="per process (%(default)s)")
    add("--num_workers", type=int, help="per process (its share of the cores)")
    add("--episode_pool_size", type=int, default=usual.episode_pool_size, help="(%(default)s)")
    add("--video_decoder_cache_size", type=int, help="video indexes to keep in memory")
    add("--frame_cache_bytes", default=usual.frame_cache_bytes, help="such as 4GiB (%(default)s)")
    add("--frame_cache_dir", type=Path, help="keep all decoded frames in this folder")
    add("--map_style", action="store_true", help="random access instead of streaming")


def _add_run(parser: argparse.ArgumentParser, usual: TrainOptions) -> None:
    add = parser.add_argument_group("run").add_argument
    add("--output_dir", type=Path, default=usual.output_dir, help="(%(default)s)")
    add("--steps", type=int, default=usual.steps, help="total (%(default)s)")
    add("--save_freq", type=int, default=usual.save_freq, help="(%(default)s)")
    add("--keep_checkpoints", type=int, default=usual.keep_checkpoints, help="(%(default)s)")
    add("--log_freq", type=int, default=usual.log_freq, help="(%(default)s)")
    add("--resume_from", metavar="PATH|latest", help="on any number of processes")
    add("--dummy", action="store_true", help="read data without training")
    add("--mixed_precision", choices=["no", "bf16", "fp16"], help="(the launcher's choice)")
    add("--learning_rate", type=float, default=usual.learning_rate, help="(%(default)s)")
    add("--warmup_steps", type=int, default=usual.warmup_steps, help="(%(default)s)")
    add("--seed", type=int, default=usual.seed, help="(%(default)s)")


_SIZES = ("width", "heads", "feedforward", "encoder_layers", "backbone_width", "image_side_px")


def _add_policy(parser: argparse.ArgumentParser, usual: TrainOptions) -> None:
    add = parser.add_argument_group("policy (ACT)").add_argument
    defaults = {"n_action_steps": usual.n_action_steps}
    defaults |= {name: getattr(usual.policy, name) for name in _SIZES}
    for name, default in defaults.items():
        add(f"--{name}", type=int, help=f"(the checkpoint's, or {default})")


def _range(text: str) -> tuple[int, int]:
    start, _, stop = text.partition(":")
    return int(start), int(stop)
