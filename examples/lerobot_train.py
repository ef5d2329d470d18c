# SPDX-License-Identifier: Apache-2.0
"""LeRobot's own training command, fed by robostream (tried with LeRobot 0.6.1 on Python 3.12).

  pip install 'lerobot[training]==0.6.1' robostream
  python examples/lerobot_train.py --policy.type=act --policy.push_to_hub=false
      --dataset.repo_id=me/my_dataset --dataset.streaming=true --batch_size=8 --steps=100000

The flags, the policies, the loop and the checkpoints are those of `lerobot-train`. These names are
exchanged before it starts:

- the two datasets, for robostream's of the same name and arguments;
- Accelerate's `Accelerator`, because LeRobot hands its loader to `accelerator.prepare`. On several
  processes that reads batches of a stream in the main process alone, and stops at the first, whose
  texts it cannot send; told not to (`dispatch_batches=False`), it splits the share of each process
  again, so that half of the frames are never seen by two. The one here returns, for a robostream
  stream, robostream's own loader: every process already has its share. All else is prepared as
  ever;
- what makes datasets and saves checkpoints, to keep where in the data the run stands: with
  `--resume=true` it goes on there, on any number of processes. LeRobot itself begins anew.
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
    """Accelerate that leaves alone what is shared among processes already."""

    feed: StreamingDataLoader | None = None

    def prepare_data_loader(self, loader: DataLoader[Any], *rest: Any, **options: Any) -> Any:
        """Return robostream's loader for its streams, else what Accelerate makes of a loader."""
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
    """Return a stream for the arguments LeRobot gives its own."""
    if repo_type == "bucket":
        root = root or f"hf://buckets/{repo_id}"
    del options["max_num_shards"]  # robostream reads as many files at a time as its order needs
    return StreamingLeRobotDataset(repo_id, root, **options)


def make_datasets(cfg: Any) -> Any:
    """Make LeRobot's datasets; a stream goes on where the checkpoint of a resumed run stands."""
    train_set, eval_set = factory.make_train_eval_datasets(cfg)
    if cfg.resume and isinstance(train_set, StreamingLeRobotDataset):
        train_set.load_state_dict(json.loads((cfg.checkpoint_path / _STATE).read_text()))
    return train_set, eval_set


def save_checkpoint(checkpoint_dir: Path, **parts: Any) -> None:
    """Save LeRobot's checkpoint and, beside it, where in the data the run stands."""
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
