# SPDX-License-Identifier: Apache-2.0
"""Measure training throughput: ACT, batches of 64, bf16, 3 cameras of 256x256, from disk.

  python examples/scaling/measure_gpu.py --out benchmarks/results/training.json

Makes the dataset unless it exists, trains, and writes JSON with the share of time spent waiting for
data and the images per second. All steps are in the first epoch, so every frame is read and decoded
during training. It also runs without a GPU, slowly.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import platform
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from examples.act import ActConfig
from examples.scaling.options import TrainOptions
from examples.scaling.training import LOG, train
from examples.synthetic import make_dataset
from robostream import LeRobotDatasetMetadata, __version__

_SIZES = ("width", "heads", "feedforward", "encoder_layers", "backbone_width")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write the figures."""
    options = _parse(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stderr)
    if not options.root.exists():
        side = options.image_side_px
        make_dataset(options.root, episodes=options.episodes, cameras=3, size=f"{side}x{side}")
    figures = measure(options)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(figures, indent=2) + "\n")
    print(json.dumps(figures, indent=2))
    return 0


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Train, and return the figures of the steps after the warm-up."""
    steps = options.warmup_steps + options.steps
    sizes = {name: getattr(options, name) for name in _SIZES}
    with tempfile.TemporaryDirectory() as folder:
        run = TrainOptions(
            repo_id="dataset",
            root=str(options.root),
            output_dir=Path(folder),
            steps=steps,
            batch_size=options.batch_size,
            num_workers=options.num_workers,
            frame_cache_bytes=options.frame_cache_bytes,
            n_action_steps=options.n_action_steps,
            save_freq=steps,  # no checkpoint while measuring
            log_freq=options.log_freq,
            mixed_precision=options.mixed_precision,
            policy=ActConfig(chunk=options.n_action_steps, **sizes),
        )
        train(run)
        text = (Path(folder) / LOG).read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    measured = [line for line in lines if line["step"] > options.warmup_steps]
    return summarise(measured, LeRobotDatasetMetadata("dataset", options.root), options)


def summarise(
    lines: list[dict[str, Any]], meta: LeRobotDatasetMetadata, options: argparse.Namespace
) -> dict[str, Any]:
    """Return the figures of some lines of a run's log, and the setup they were measured on."""
    seconds = sum(line["seconds"] for line in lines)
    samples = sum(line["samples"] for line in lines)
    waited = sum(line["data_wait_share"] * line["seconds"] for line in lines)
    cuda = torch.cuda.is_available()
    height, width, _ = meta.features[meta.camera_keys[0]]["shape"]
    return {
        "data_wait_share": waited / seconds,
        "images_per_s": samples * len(meta.camera_keys) / seconds,
        "samples_per_s": samples / seconds,
        "step_s": seconds * options.batch_size / samples,
        "samples": samples,
        "loss": lines[-1]["loss"],
        "policy": "ACT",
        "batch_size": options.batch_size,
        "mixed_precision": options.mixed_precision,
        "cameras": len(meta.camera_keys),
        "picture": f"{width}x{height}",
        "frame_cache_bytes": options.frame_cache_bytes,
        "device": torch.cuda.get_device_name() if cuda else platform.processor() or "CPU",
        "cores": len(os.sched_getaffinity(0)),
        "torch": torch.__version__,
        "robostream": __version__,
    }


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    usual = ActConfig()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--out", type=Path, default=Path("training.json"), help="(%(default)s)")
    add("--root", type=Path, default=Path("outputs/measure/dataset"), help="(%(default)s)")
    add("--episodes", type=int, default=40, help="episodes of a made dataset (%(default)s)")
    add("--image_side_px", type=int, default=256, help="image size of a made dataset (%(default)s)")
    add("--steps", type=int, default=120, help="steps to measure (%(default)s)")
    add("--warmup_steps", type=int, default=40, help="steps before measuring (%(default)s)")
    add("--log_freq", type=int, default=20, help="(%(default)s)")
    add("--batch_size", type=int, default=64, help="(%(default)s)")
    add("--num_workers", type=int, help="(all cores)")
    add("--frame_cache_bytes", default="auto", help="(%(default)s)")
    add("--mixed_precision", choices=["bf16", "no"], default="bf16", help="(%(default)s)")
    add("--n_action_steps", type=int, default=usual.chunk, help="(%(default)s)")
    for name in _SIZES:
        add(f"--{name}", type=int, default=getattr(usual, name), help="(%(default)s)")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
