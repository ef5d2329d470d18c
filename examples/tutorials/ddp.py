# SPDX-License-Identifier: Apache-2.0
"""Train on all GPUs of a machine, or on several machines.

`torchrun --nproc-per-node 2 examples/tutorials/ddp.py my_dataset`
"""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist
from torch import nn

from robostream import StreamingDataLoader, StreamingLeRobotDataset


def main(dataset: str) -> None:
    """Train for one epoch; the first process checks that every frame was delivered."""
    has_gpu = torch.cuda.is_available()
    dist.init_process_group("nccl" if has_gpu else "gloo")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if has_gpu else torch.device("cpu")

    stream = StreamingLeRobotDataset(dataset)  # finds its rank and the number of ranks
    loader = StreamingDataLoader(stream, batch_size=16, device=device if has_gpu else None)
    policy = nn.parallel.DistributedDataParallel(nn.Linear(6, 6).to(device))
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3)

    mine: list[int] = []
    for batch in loader:  # all ranks get the same number of batches, so none waits forever
        loss = (policy(batch["observation.state"]) - batch["action"]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mine += batch["index"].tolist()

    everyone: list[list[int]] = [[] for _ in range(dist.get_world_size())]
    dist.all_gather_object(everyone, mine)
    if dist.get_rank() == 0:
        seen = [frame for frames in everyone for frame in frames]
        shares = ", ".join(str(len(frames)) for frames in everyone)
        print(f"{len(everyone)} ranks delivered {shares} frames")
        print(f"{len(set(seen))} of {stream.num_frames} frames, {len(seen) - len(set(seen))} twice")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
