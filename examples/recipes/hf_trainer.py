# SPDX-License-Identifier: Apache-2.0
"""Train with the Trainer of Hugging Face's transformers; run it again to continue.

`python examples/recipes/hf_trainer.py my_dataset run --steps 20`, or with `torchrun` before it.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

from robostream import StreamingDataLoader, StreamingLeRobotDataset


class Policy(nn.Module):
    """Predicts actions from states."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(6, 6)

    def forward(self, **batch: Any) -> dict[str, torch.Tensor]:
        """Return the loss of a batch; the Trainer passes its keys as arguments."""
        error = self.net(batch["observation.state"]) - batch["action"]
        return {"loss": error.square().mean()}


class StreamTrainer(Trainer):  # type: ignore[misc]
    """A Trainer that reads a StreamingDataLoader."""

    def __init__(self, loader: StreamingDataLoader, **options: Any) -> None:
        super().__init__(callbacks=[SavePosition(loader)], **options)
        self.loader = loader

    def get_train_dataloader(self) -> StreamingDataLoader:
        """Return the loader as it is: every process has its share already."""
        return self.loader


class SavePosition(TrainerCallback):  # type: ignore[misc]
    """Saves the position in the data with each checkpoint, and prints it after each step."""

    def __init__(self, loader: StreamingDataLoader) -> None:
        self.loader = loader

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Write the loader's state into the checkpoint."""
        if state.is_world_process_zero:
            path = Path(args.output_dir) / f"checkpoint-{state.global_step}" / "loader.json"
            path.write_text(json.dumps(self.loader.state_dict()))

    def on_log(self, args: Any, state: Any, control: Any, logs: Any, **_: Any) -> None:
        """Print the step, the position and the loss."""
        if state.is_world_process_zero and "loss" in logs:
            at = self.loader.state_dict()
            place = f"epoch {at['epoch']} position {at['position']} receipt {at['receipt']}"
            print(f"step {state.global_step} {place} loss {float(logs['loss']):.6f}", flush=True)


def main(dataset: str, out: Path, steps: int) -> None:
    """Train until the step, from the last checkpoint of an earlier run if there is one."""
    args = TrainingArguments(  # before the stream: it starts the processes' group
        str(out),
        max_steps=steps,
        learning_rate=1e-3,
        lr_scheduler_type="constant",
        save_steps=5,
        logging_steps=1,
        ignore_data_skip=True,  # the loader itself continues from its position
        remove_unused_columns=False,
        report_to="none",
        disable_tqdm=True,
        seed=0,
    )
    stream = StreamingLeRobotDataset(dataset, camera_keys=[], seed=0)
    loader = StreamingDataLoader(stream, batch_size=8)
    last = get_last_checkpoint(str(out)) if out.exists() else None
    if last is not None:
        loader.load_state_dict(json.loads((Path(last) / "loader.json").read_text()))
    torch.manual_seed(args.seed)  # the Trainer seeds only after the model is made
    StreamTrainer(loader, model=Policy(), args=args).train(resume_from_checkpoint=last)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dataset")
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=200)
    given = parser.parse_args()
    main(given.dataset, given.out, given.steps)
