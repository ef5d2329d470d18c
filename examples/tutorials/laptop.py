# SPDX-License-Identifier: Apache-2.0
"""Train a small network: `python examples/tutorials/laptop.py my_dataset`."""

from __future__ import annotations

import sys

import torch
from torch import nn

from robostream import StreamingDataLoader, StreamingLeRobotDataset

CAMERA = "observation.images.front"


def main(dataset: str, epochs: int = 3) -> None:
    """Train on one camera, scaled down, and print what each epoch cost."""
    torch.set_num_threads(1)  # the loader's workers use the other cores
    stream = StreamingLeRobotDataset(
        dataset,
        camera_keys=[CAMERA],  # the other cameras are not decoded
        resize=(64, 64),  # when a frame is decoded, so caches hold small frames
        delta_timestamps={"action": [0, 0.05, 0.1, 0.15]},  # the next 4 actions
        episode_filter=lambda episode: episode["length"] >= 20,
        return_uint8=True,  # a quarter of the bytes of float32
    )
    loader = StreamingDataLoader(stream, batch_size=32)
    policy = nn.Sequential(nn.Flatten(), nn.Linear(3 * 64 * 64, 64), nn.ReLU(), nn.Linear(64, 24))
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3)
    print(f"{stream.num_episodes} episodes, {stream.num_frames} frames, {len(loader)} batches")

    decoded = 0.0
    for epoch in range(epochs):
        for batch in loader:  # each loop is the next epoch, with a new shuffle
            actions = policy(batch[CAMERA].float() / 255).view_as(batch["action"])
            error = (actions - batch["action"]).square().mean(dim=2)
            loss = error[~batch["action_is_pad"]].mean()  # frames after an episode's end are padded
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        stats = loader.stats()
        new, decoded = stats["images_decoded"] - decoded, stats["images_decoded"]
        print(f"epoch {epoch}: loss {loss.item():.3f}, {new:.0f} frames decoded")


if __name__ == "__main__":
    main(sys.argv[1])
