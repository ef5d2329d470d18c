# SPDX-License-Identifier: Apache-2.0
"""LeRobot's own training command with robostream's data (LeRobot 0.6.1, Python 3.12).

  pip install 'lerobot[training]==0.6.1' robostream
  python examples/lerobot_train.py --policy.type=act --policy.push_to_hub=false
      --dataset.repo_id=me/my_dataset --dataset.streaming=true --batch_size=8 --steps=100000

Flags, policies, training loop and checkpoints are those of `lerobot-train`. The program replaces
these names before it starts:

- The two dataset classes, by robostream's classes of the same name and arguments.
- Accelerate's `Accelerator`, because LeRobot passes its loader to `accelerator.prepare`. On several
  processes, that reads a stream in the main process only, and fails at the first batch, because it
  cannot send texts. With `dispatch_batches=False` it splits each process's share again, so two
  processes never see half of the frames. The class here returns robostream's own loader for a
  robostream stream, since every process already has its share. It prepares all else as usual.
- The functions that make datasets and save checkpoints, to save the position in the data. With
  `--resume=true`, a run continues there, on any number of processes. LeRobot itself starts the data
  from the beginning.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import accelerate
from lerobot.datasets import factory
from lerobot.scripts import lerobot_train
from torch.utils.data import DataLoader

from robostream import LeRobotDataset, StreamingDataLoader, StreamingLeRobotDataset

_STATE = Path("training_state") / "loader_state.json"


class FeedingAccelerator(accelerate.Accelerator):  # type: ignore[misc]
    """An Accelerator that returns robostream's loader for a robostream stream."""

    feed: StreamingDataLoader | None = None

    def prepare_data_loader(self, loader: DataLoader[Any], *rest: Any, **options: Any) -> Any:
        """Return robostream's loader for a stream; other loaders are prepared as usual."""
        if not isinstance(loader.dataset, StreamingLeRobotDataset):
            return super().prepare_data_loader(loader, *rest, **options)
        assert loader.batch_size is not None
        FeedingAccelerator.feed = StreamingDataLoader(
            loader.dataset,
            loader.batch_size,
            num_workers=loader.num_workers,
            pin_memory=loader.pin_memory,
        )
        return FeedingAccelerator.feed


def open_stream(
    repo_id: str, root: str | None = None, *, repo_type: str = "dataset", **options: Any
) -> StreamingLeRobotDataset:
    """Return a stream for the arguments that LeRobot passes to its own class."""
    if repo_type == "bucket":
        root = root or f"hf://buckets/{repo_id}"
    del options["max_num_shards"]  # robostream's order decides how many files are open
    return StreamingLeRobotDataset(repo_id, root, **options)


def make_datasets(cfg: Any) -> Any:
    """Make LeRobot's datasets; with --resume, a stream continues from the checkpoint."""
    train_set, eval_set = factory.make_train_eval_datasets(cfg)
    if cfg.resume and isinstance(train_set, StreamingLeRobotDataset):
        train_set.load_state_dict(json.loads((cfg.checkpoint_path / _STATE).read_text()))
    return train_set, eval_set


def save_checkpoint(checkpoint_dir: Path, **parts: Any) -> None:
    """Save LeRobot's checkpoint and the position in the data."""
    _save_checkpoint(checkpoint_dir=checkpoint_dir, **parts)
    if FeedingAccelerator.feed is not None:
        state = FeedingAccelerator.feed.state_dict()
        (checkpoint_dir / _STATE).write_text(json.dumps(state))


_save_checkpoint = lerobot_train.save_checkpoint


def main() -> None:
    """Run LeRobot's command with robostream's data."""
    factory.LeRobotDataset = LeRobotDataset
    factory.StreamingLeRobotDataset = open_stream
    accelerate.Accelerator = FeedingAccelerator
    lerobot_train.make_train_eval_datasets = make_datasets
    lerobot_train.save_checkpoint = save_checkpoint
    lerobot_train.main()


if __name__ == "__main__":
    main()
