# SPDX-License-Identifier: Apache-2.0
"""`python -m robostream.lerobot_train`: LeRobot's own training command with robostream's data.

Flags, policies, training loop and checkpoints are those of `lerobot-train`, of LeRobot 0.4.4 or
0.6.1. `main` replaces these names in LeRobot's modules before it starts the command:

- The dataset and metadata classes, by robostream's classes of the same names.
- Accelerate's `Accelerator`, because LeRobot passes its loader to `accelerator.prepare`. On several
  processes, that reads a stream in the main process only, and fails at the first batch, because it
  cannot send texts. With `dispatch_batches=False` it splits each process's share again, so two
  processes never see half of the frames. The class here returns robostream's own loader for a
  robostream stream, since every process already has its share. It prepares all else as usual.
- The functions that make datasets and save checkpoints, to save the position in the data. With
  `--resume=true`, a stream continues there, on any number of processes. LeRobot itself starts a
  stream from the beginning.
- The function of a training step, to log the loss of each dataset of a mixture. A mixture is a
  YAML file as `--dataset.repo_id`.
- The sampler of LeRobot 0.4.4, which fails with a stream, and takes other frames than those of
  the chosen episodes.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from torch.utils.data import DataLoader, Subset

from robostream import arguments
from robostream.dataset import LeRobotDataset
from robostream.errors import SelectionError
from robostream.lerobot_mixture import (
    LeRobotMixture,
    MixtureLoader,
    MixtureMetadata,
    is_mixture,
    log_losses,
    open_mixture,
)
from robostream.loader import EpisodeAwareSampler, StreamingDataLoader, StreamingLeRobotDataset
from robostream.meta import LeRobotDatasetMetadata
from robostream.storage import write_bytes_atomic

Streamed = StreamingLeRobotDataset | LeRobotMixture
TESTED = ("0.4.4", "0.6.1")
# Names of LeRobot's command that every version has, and those of which it has one.
_NEEDED = ("EpisodeAwareSampler", "save_checkpoint")
_MAKERS = ("make_dataset", "make_train_eval_datasets")
_COMMAND = "lerobot.scripts.lerobot_train"
_FACTORY = "lerobot.datasets.factory"
_STATE = Path("training_state") / "loader_state.json"

logger = logging.getLogger(__name__)


@dataclass(eq=False, repr=False)
class LeRobotRun:
    """Opens the datasets of one run, feeds it, and saves its position in the data.

    Its methods stand in for the functions and classes that LeRobot's command calls.
    """

    _factory: Any  # LeRobot's module that makes datasets, or anything with its functions
    _cfg: Any = None
    _order: dict[str, Any] = field(default_factory=dict)
    _meta: LeRobotDatasetMetadata | None = None  # of a stream
    _num_halves: int = 0  # how many halves of `eval_split` were opened
    _train_set: Any = None
    _loader: StreamingDataLoader | None = None  # over the data to train on

    def make_dataset(self, cfg: Any) -> Any:
        """Return the dataset of a LeRobot without `eval_split`, where a resumed run continues."""
        self._begin(cfg)
        self._train_set = self._factory.make_dataset(cfg)
        self._restore()
        return self._train_set

    def make_train_eval_datasets(self, cfg: Any) -> tuple[Any, Any]:
        """Return the datasets to train on and to evaluate on (None without `eval_split`).

        LeRobot chooses the episodes of both.
        """
        self._begin(cfg)
        self._train_set, eval_set = self._factory.make_train_eval_datasets(cfg)
        self._restore()
        return self._train_set, cap_evaluation(cfg, eval_set)

    def _begin(self, cfg: Any) -> None:
        self._cfg = cfg
        self._num_halves = 0
        if cfg.dataset.streaming:
            self._order = training_order(cfg)

    def _restore(self) -> None:
        """Move a stream to where the checkpoint of a resumed run stands."""
        if not (self._cfg.resume and isinstance(self._train_set, Streamed)):
            return
        path = Path(self._cfg.checkpoint_path) / _STATE
        if path.exists():
            self._train_set.load_state_dict(json.loads(path.read_text()))
        else:
            logger.warning(
                "%s does not exist: the checkpoint was not written by robostream.lerobot_train "
                "with --dataset.streaming=true. The data starts from the beginning of epoch 0.",
                path,
            )

    def open_metadata(
        self,
        repo_id: str,
        root: str | None = None,
        revision: str | None = None,
        repo_type: str = "dataset",
    ) -> LeRobotDatasetMetadata | MixtureMetadata:
        """Return robostream's metadata for the arguments of LeRobot's class."""
        if not is_mixture(repo_id):
            return LeRobotDatasetMetadata(repo_id, find_root(repo_id, root, repo_type), revision)
        if not self._cfg.dataset.streaming or getattr(self._cfg.dataset, "eval_split", None):
            raise SelectionError(
                f"{repo_id} describes a mixture, which is a stream without eval_split: pass "
                "--dataset.streaming=true, and leave --dataset.eval_split out"
            )
        return open_mixture(repo_id, rank=0, world_size=1).meta

    def open_dataset(self, repo_id: str, root: str | None = None, **options: Any) -> Any:
        """Return robostream's dataset for the arguments of LeRobot's map-style class.

        LeRobot opens both halves of `eval_split` with that class, even if it streams. Here they
        are streams then, and the half to evaluate on is not shuffled.
        """
        options = self._depth_unit() | options
        if not self._cfg.dataset.streaming:
            return LeRobotDataset(repo_id, root, **options)
        del options["video_backend"]  # streams decode with PyAV
        self._num_halves += 1  # LeRobot opens the half to train on first
        if self._num_halves == 1:
            return StreamingLeRobotDataset(repo_id, root, **options, **self._order)
        assert self._meta is not None  # of the whole dataset, which LeRobot opens before its halves
        frames = first_frames(self._meta, options["episodes"], most_evaluated(self._cfg))
        return StreamingLeRobotDataset(repo_id, root, **options, frames=frames, shuffle=False)

    def open_stream(
        self,
        repo_id: str,
        root: str | None = None,
        *,
        max_num_shards: int | None = None,
        repo_type: str = "dataset",
        **options: Any,
    ) -> Streamed:
        """Return robostream's stream for the arguments of LeRobot's streaming class."""
        del max_num_shards  # robostream's order decides how many files are open
        options = self._depth_unit() | options | self._order
        if is_mixture(repo_id):
            return open_mixture(repo_id, root=root, **options)
        place = find_root(repo_id, root, repo_type)
        stream = StreamingLeRobotDataset(repo_id, place, **options)
        self._meta = stream.meta
        return stream

    def _depth_unit(self) -> dict[str, str]:
        """Return `depth_output_unit` where LeRobot has it; it forgets to pass it on to streams."""
        unit = getattr(self._cfg.dataset, "depth_output_unit", None)
        return {} if unit is None else {"depth_output_unit": unit}

    def make_sampler(self, sampler: Any, starts: Any, stops: Any, **options: Any) -> Any:
        """Return LeRobot's `sampler` for a map-style dataset, and None for a stream.

        The sampler of LeRobot 0.4.4 has no seed, and does not know which frames an item number
        means if there are `episodes`; robostream's takes its place.
        """
        if self._cfg.dataset.streaming:
            return None
        if "absolute_to_relative_idx" in options:
            return sampler(starts, stops, **options)
        options["absolute_to_relative_idx"] = self._train_set.absolute_to_relative_idx
        return EpisodeAwareSampler(starts, stops, **options, seed=seed_of(self._cfg))

    def feed(self, loader: DataLoader[Any]) -> StreamingDataLoader:
        """Return robostream's loader in place of a plain one over a stream."""
        stream = loader.dataset
        assert isinstance(stream, Streamed)
        assert loader.batch_size is not None
        kind = MixtureLoader if isinstance(stream, LeRobotMixture) else StreamingDataLoader
        fed = kind(
            stream,
            loader.batch_size,
            num_workers=loader.num_workers,
            pin_memory=loader.pin_memory,
        )
        if stream is self._train_set:
            self._loader = fed
        return fed

    def update_policy(
        self, update: Any, metrics: Any, policy: Any, batch: Any, *rest: Any, **options: Any
    ) -> Any:
        """Take a step with LeRobot's function `update`; log the loss of each dataset if due."""
        result = update(metrics, policy, batch, *rest, **options)
        step, every = metrics.steps + 1, self._cfg.log_freq
        if isinstance(self._loader, MixtureLoader) and every > 0 and step % every == 0:
            log_losses(step, policy, batch, self._loader, options["accelerator"])
        return result

    def save_checkpoint(self, save: Any, checkpoint_dir: Path, **parts: Any) -> None:
        """Save LeRobot's checkpoint with its function `save`, and the position in the data.

        LeRobot marks the checkpoint as the last one afterwards.
        """
        save(checkpoint_dir=checkpoint_dir, **parts)
        if self._loader is not None:
            state = json.dumps(self._loader.state_dict())
            write_bytes_atomic(Path(checkpoint_dir) / _STATE, state.encode())


def find_root(repo_id: str, root: str | None, repo_type: str) -> str | None:
    """Return where a dataset lies, None to search it by its name."""
    return root or (f"hf://buckets/{repo_id}" if repo_type == "bucket" else None)


def seed_of(cfg: Any) -> int:
    """Return the seed of the order: LeRobot's `--seed`, and 0 for none, as LeRobot's sampler."""
    return 0 if cfg.seed is None else arguments.whole_number(cfg.seed, "seed", 0)


def training_order(cfg: Any) -> dict[str, Any]:
    """Return the options of the stream to train on: its seed, and the frames it leaves out.

    Those are the last `drop_n_last_frames` of every episode, if the policy has that setting.
    LeRobot's sampler leaves them out of map-style datasets, and episodes that are no longer; its
    streams deliver them.
    """
    order: dict[str, Any] = {"seed": seed_of(cfg)}
    policy = getattr(cfg, "trainable_config", cfg.policy)
    count = getattr(policy, "drop_n_last_frames", 0) or 0
    if count:
        logger.info(
            "drop_n_last_frames=%d: the stream leaves out the last frames of each episode "
            "(LeRobot's own streams ignore this setting)",
            count,
        )
        order["frames"] = lambda row: [(0, row["length"] - count)] if row["length"] > count else []
    return order


def most_evaluated(cfg: Any) -> int:
    """Return `max_eval_samples`, 0 for all; LeRobot applies it to its own class only."""
    return int(getattr(cfg, "max_eval_samples", 0))


def first_frames(
    meta: LeRobotDatasetMetadata, episodes: Sequence[int], most: int
) -> dict[int, list[tuple[int, int]]] | None:
    """Return the first frames of each task by episode: equally many, at most `most` in all.

    None for all frames. The first task of an episode counts, as in LeRobot's split.
    """
    if most <= 0:
        return None
    rows = [meta.episodes[episode] for episode in sorted(episodes)]
    tasks = [row["tasks"][0] if row["tasks"] else "" for row in rows]
    left = dict.fromkeys(tasks, max(1, most // len(set(tasks))))
    ranges = {}
    for row, task in zip(rows, tasks, strict=True):
        count = min(left[task], row["length"])
        left[task] -= count
        ranges[int(row["episode_index"])] = [(0, count)] if count else []
    return ranges


def cap_evaluation(cfg: Any, eval_set: Any) -> Any:
    """Return the first frames of each task of a map-style dataset; a stream has only those."""
    most = most_evaluated(cfg)
    if most <= 0 or not isinstance(eval_set, LeRobotDataset):
        return eval_set
    tasks = eval_set.select_columns("task_index")["task_index"]
    each = max(1, most // len(tasks.unique()))
    chosen = [(tasks == task).nonzero().flatten()[:each].tolist() for task in tasks.unique()]
    return Subset(eval_set, [frame for frames in chosen for frame in frames])


def feeding_accelerator(run: LeRobotRun, base: Any) -> type:
    """Return an Accelerator that takes robostream's loader for a robostream stream."""

    class FeedingAccelerator(base):  # type: ignore[misc]
        def prepare_data_loader(self, loader: DataLoader[Any], *rest: Any, **options: Any) -> Any:
            if isinstance(loader.dataset, Streamed):
                return run.feed(loader)
            return super().prepare_data_loader(loader, *rest, **options)

    return FeedingAccelerator


def refuse_job(cfg: Any) -> NoReturn:
    """Raise SelectionError: LeRobot would run its own command on the other machine."""
    raise SelectionError(
        f"--job.target={cfg.job.target} starts lerobot-train on another machine, without "
        "robostream. Leave it out, and start robostream.lerobot_train on that machine."
    )


def replace_names(run: LeRobotRun, command: Any, factory: Any, accelerate: Any) -> None:
    """Replace the names of LeRobot's modules that this command stands in for.

    Raises SelectionError for a LeRobot that lacks them, which would train on its own data.
    """
    lacking = [name for name in _NEEDED if not hasattr(command, name)]
    if not any(hasattr(command, name) for name in _MAKERS):
        lacking.append(" or ".join(_MAKERS))
    if lacking:
        raise SelectionError(
            f"{_COMMAND} has no {', '.join(lacking)}. Install LeRobot {' or '.join(TESTED)}, with "
            "which robostream.lerobot_train works."
        )
    feeder = feeding_accelerator(run, accelerate.Accelerator)
    replacements = {
        "Accelerator": feeder,  # some versions import it only when they need it
        "EpisodeAwareSampler": partial(run.make_sampler, command.EpisodeAwareSampler),
        "make_dataset": run.make_dataset,
        "make_train_eval_datasets": run.make_train_eval_datasets,
        "save_checkpoint": partial(run.save_checkpoint, command.save_checkpoint),
        "submit_to_hf": refuse_job,
    }
    if hasattr(command, "update_policy"):
        replacements["update_policy"] = partial(run.update_policy, command.update_policy)
    vars(command).update({n: v for n, v in replacements.items() if hasattr(command, n)})
    vars(accelerate).update(Accelerator=feeder)
    vars(factory).update(
        LeRobotDataset=run.open_dataset,
        LeRobotDatasetMetadata=run.open_metadata,
        StreamingLeRobotDataset=run.open_stream,
    )


def warn_of_untested(version: str) -> None:
    """Warn of a LeRobot that robostream.lerobot_train is not tested with."""
    if version not in TESTED:
        logger.warning(
            "robostream.lerobot_train is tested with LeRobot %s, and this is LeRobot %s",
            " and ".join(TESTED),
            version,
        )


def main() -> None:
    """Run LeRobot's command with robostream's data."""
    try:
        version = importlib.metadata.version("lerobot")
        modules = [importlib.import_module(name) for name in (_COMMAND, _FACTORY, "accelerate")]
    except ImportError as error:
        sys.exit(
            f"robostream.lerobot_train needs LeRobot, which cannot be imported: {error}. Install "
            "it with: pip install 'lerobot[training]==0.6.1' (Python 3.12 or newer), or pip "
            "install lerobot==0.4.4"
        )
    warn_of_untested(version)
    command, factory, accelerate = modules
    replace_names(LeRobotRun(factory), command, factory, accelerate)
    command.main()


if __name__ == "__main__":
    main()
