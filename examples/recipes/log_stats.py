# SPDX-License-Identifier: Apache-2.0
"""Write the loader's statistics to TensorBoard while training.

`python examples/recipes/log_stats.py my_dataset logs --steps 100`
"""

from __future__ import annotations

import argparse

import torch
from torch import nn
from torch.utils.tensorboard import SummaryWriter

from robostream import StreamingDataLoader, StreamingLeRobotDataset

LOG_EVERY = 10


def main(dataset: str, logs: str, steps: int) -> None:
    """Train for some steps."""
    loader = StreamingDataLoader(StreamingLeRobotDataset(dataset), batch_size=8)
    policy = nn.Linear(6, 6)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3)
    step = 0
    with SummaryWriter(logs) as writer:
        while step < steps:
            for batch in loader:
                loss = (policy(batch["observation.state"]) - batch["action"]).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                step += 1
                if step % LOG_EVERY == 0:
                    writer.add_scalar("loss", loss.item(), step)
                    for name, value in loader.stats().items():
                        writer.add_scalar(f"data/{name}", value, step)
                if step == steps:
                    break


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dataset")
    parser.add_argument("logs")
    parser.add_argument("--steps", type=int, default=200)
    given = parser.parse_args()
    main(given.dataset, given.logs, given.steps)
