# SPDX-License-Identifier: Apache-2.0
"""Train, be stopped at any moment, and continue where the last checkpoint was.

`python examples/tutorials/resume.py my_dataset run --steps 200 --batch_size 8`; run it again to
continue, with another batch size if you like.
"""

from __future__ import annotations

import argparse
import os
import signal
import threading
from pathlib import Path
from typing import Any

import torch
from torch import nn

from robostream import StreamingDataLoader, StreamingLeRobotDataset

SAVE_EVERY = 5


def main(dataset: str, out: Path, steps: int, batch_size: int) -> None:
    """Train until the step, from the checkpoint of an earlier run if there is one."""
    torch.manual_seed(0)
    is_stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: is_stopping.set())  # what a cluster sends

    loader = StreamingDataLoader(StreamingLeRobotDataset(dataset, camera_keys=[]), batch_size)
    policy = nn.Linear(6, 6)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3)
    checkpoint, step = out / "checkpoint.pt", 0
    if checkpoint.exists():
        saved = torch.load(checkpoint)
        policy.load_state_dict(saved["policy"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["loader"])
        step = saved["step"]
        print(f"continuing after step {step}", flush=True)

    while step < steps and not is_stopping.is_set():
        for batch in loader:
            loss = (policy(batch["observation.state"]) - batch["action"]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            state = loader.state_dict()
            print(f"step {step} {describe(state)} loss {loss.item():.6f}", flush=True)
            is_last = step == steps or is_stopping.is_set()
            if is_last or step % SAVE_EVERY == 0:
                parts = {"policy": policy.state_dict(), "optimizer": optimizer.state_dict()}
                save(checkpoint, {**parts, "loader": state, "step": step})
            if is_last:
                break


def describe(state: dict[str, Any]) -> str:
    """Return the position of a state, and the digest of all frames delivered up to it."""
    return f"epoch {state['epoch']} position {state['position']} receipt {state['receipt']}"


def save(path: Path, content: dict[str, Any]) -> None:
    """Write a checkpoint under another name, then rename it: it is complete or absent."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    torch.save(content, partial)
    os.replace(partial, path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dataset")
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch_size", type=int, default=8)
    given = parser.parse_args()
    main(given.dataset, given.out, given.steps, given.batch_size)
