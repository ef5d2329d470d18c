# SPDX-License-Identifier: Apache-2.0
"""Train with JAX on numpy batches; run it again to continue.

`python examples/recipes/plain_jax.py my_dataset run --steps 20`
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from robostream import StreamingDataLoader, StreamingLeRobotDataset

KEYS = ("observation.state", "observation.images.front", "action")
SAVE_EVERY = 5


def as_numpy(loader: StreamingDataLoader) -> Iterator[dict[str, np.ndarray[Any, Any]]]:
    """Yield the batches of all epochs as numpy arrays, without a copy."""
    while True:
        for batch in loader:
            yield {key: batch[key].numpy() for key in KEYS}


def loss_of(params: dict[str, jax.Array], batch: dict[str, Any]) -> jax.Array:
    """Return the loss of actions predicted from the state and the mean colour of a camera."""
    colours = batch["observation.images.front"].astype(jnp.float32).mean(axis=(2, 3)) / 255
    inputs = jnp.concatenate([batch["observation.state"], colours], axis=1)
    return jnp.square(inputs @ params["weight"] + params["bias"] - batch["action"]).mean()


@jax.jit  # type: ignore[untyped-decorator]
def train_step(params: Any, batch: Any) -> tuple[Any, jax.Array]:
    """Return the parameters after a step of gradient descent, and the loss before it."""
    loss, gradients = jax.value_and_grad(loss_of)(params, batch)
    return jax.tree.map(lambda p, g: p - 0.05 * g, params, gradients), loss


def main(dataset: str, out: Path, steps: int) -> None:
    """Train until the step, from the checkpoint of an earlier run if there is one."""
    stream = StreamingLeRobotDataset(
        dataset,
        camera_keys=["observation.images.front"],
        return_uint8=True,  # a quarter of the bytes; the step converts them on the device
        seed=0,
        rank=jax.process_index(),
        world_size=jax.process_count(),
    )
    loader = StreamingDataLoader(stream, batch_size=8)
    params, step, path = {"weight": jnp.zeros((9, 6)), "bias": jnp.zeros(6)}, 0, out / "last.npz"
    if path.exists():
        saved = np.load(path)
        params = {name: jnp.asarray(saved[name]) for name in params}
        loader.load_state_dict(json.loads(str(saved["loader"])))
        step = int(saved["step"])
    batches = as_numpy(loader)
    while step < steps:
        params, loss = train_step(params, next(batches))
        step += 1
        at = loader.state_dict()
        place = f"epoch {at['epoch']} position {at['position']} receipt {at['receipt']}"
        print(f"step {step} {place} loss {float(loss):.6f}", flush=True)
        if step % SAVE_EVERY == 0 or step == steps:
            save(path, {**params, "loader": json.dumps(at), "step": step})


def save(path: Path, content: dict[str, Any]) -> None:
    """Write a checkpoint under another name, then rename it: it is complete or absent."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial.npz")
    np.savez(partial, **content)
    os.replace(partial, path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dataset")
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=200)
    given = parser.parse_args()
    main(given.dataset, given.out, given.steps)
