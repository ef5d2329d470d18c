# SPDX-License-Identifier: Apache-2.0
"""Train with Lightning on several processes; run it again to continue.

`python examples/recipes/lightning_ddp.py my_dataset run --steps 20 --devices 2`
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn

from robostream import StreamingDataLoader, StreamingLeRobotDataset


class Policy(lightning.LightningModule):  # type: ignore[misc]
    """Predicts actions from states."""

    def __init__(self, dataset: str) -> None:
        super().__init__()
        self.dataset, self.net = dataset, nn.Linear(6, 6)

    def train_dataloader(self) -> StreamingDataLoader:
        """Make the loader in every process, after Lightning has told it its rank."""
        stream = StreamingLeRobotDataset(self.dataset, camera_keys=[], seed=0)
        return StreamingDataLoader(stream, batch_size=8)

    def training_step(self, batch: dict[str, Any], _: int) -> torch.Tensor:
        """Return the loss of a batch."""
        error: torch.Tensor = self.net(batch["observation.state"]) - batch["action"]
        loss = error.square().mean()
        self.log("loss", loss)
        return loss

    def on_train_batch_end(self, outputs: Any, *_: Any) -> None:
        """Print the position in the data, which is the same in all processes."""
        state = self.trainer.train_dataloader.state_dict()
        place = f"epoch {state['epoch']} position {state['position']} receipt {state['receipt']}"
        self.print(f"step {self.global_step} {place} loss {outputs['loss']:.6f}", flush=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimizer."""
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def main(dataset: str, out: Path, steps: int, devices: int) -> None:
    """Train until the step, from the checkpoint of an earlier run if there is one."""
    lightning.seed_everything(0)
    checkpoints = ModelCheckpoint(
        out, filename="last", every_n_train_steps=5, enable_version_counter=False
    )
    trainer = lightning.Trainer(
        max_steps=steps,
        devices=devices,
        strategy="ddp" if devices > 1 else "auto",
        use_distributed_sampler=False,  # the stream gives each process its share
        callbacks=[checkpoints],
        default_root_dir=out,
        enable_progress_bar=False,
    )
    last = out / "last.ckpt"
    trainer.fit(Policy(dataset), ckpt_path=last if last.exists() else None)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dataset")
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--devices", type=int, default=1)
    given = parser.parse_args()
    main(given.dataset, given.out, given.steps, given.devices)
