# SPDX-License-Identifier: Apache-2.0
"""`robostream demo`: make a small dataset, stream it, and check the promises."""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import closing
from itertools import chain, islice
from pathlib import Path
from statistics import median
from typing import Any

from robostream import config
from robostream.bench import decode_floor
from robostream.byte_sizes import format_bytes
from robostream.cli.arguments import add_json, print_result, terminal_table
from robostream.loader import StreamingDataLoader, StreamingLeRobotDataset
from robostream.progress import Progress
from robostream.tools import SynthSpec, make_dataset

EXAMPLES = """\
  robostream demo                       in a temporary folder, about a minute
  robostream demo --dataset my/data     on your own dataset, which is only read
  robostream demo --json                the figures for a script
"""

# Many small files, so that all processes that measure the decode floor have work.
_SIZES: dict[str, Any] = {"width": 192, "height": 192, "video_file_mb": 0.2}
_SPEC = SynthSpec(episodes=20, min_frames=100, max_frames=140, cameras=3, **_SIZES)
_BATCH = 16
_ROUNDS = 3
_COUNTS = ("images_delivered", "images_decoded")

Check = tuple[str, bool, str]
Open = Callable[..., StreamingLeRobotDataset]


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `robostream demo`."""
    parser.add_argument("--dataset", type=Path, help="a local dataset to use instead of a new one")
    add_json(parser, "the figures")


def run(args: argparse.Namespace) -> int:
    """Make, stream, check; exit code 1 if a promise does not hold."""
    config.quiet_encoders()
    with tempfile.TemporaryDirectory(prefix="robostream-demo-") as folder:
        root = args.dataset or Path(folder) / "dataset"
        if args.dataset is None:
            report = make_dataset(root, _SPEC)
            if not args.json:
                size = f"{report.frames} frames, {format_bytes(report.size_bytes)}"
                print(f"made {report.episodes} episodes of a robot at a table: {size}", flush=True)

        def open_stream(**options: Any) -> StreamingLeRobotDataset:
            return StreamingLeRobotDataset("demo", root=root, return_uint8=True, **options)

        speed = _measure_speed(open_stream, root, progress=not args.json)
        checks = [_check_once(open_stream), _check_resume(open_stream), _check_ranks(open_stream)]
    figures = {"proofs": {name: held for name, held, _ in checks}, "speed": speed}
    print_result(args, figures, _as_text(checks, speed))
    return 0 if all(held for _, held, _ in checks) else 1


def _measure_speed(open_stream: Open, root: Path, *, progress: bool) -> dict[str, float]:
    """Stream two epochs and decode the dataset alone, in turn; return the medians."""
    files = sorted(str(path) for path in root.glob("videos/**/*.mp4"))
    rounds = []
    samples = 2 * _ROUNDS * open_stream().num_frames
    bar = Progress("streaming", samples, "samples", is_shown=progress, leave=False)
    for _ in range(_ROUNDS):
        loader = StreamingDataLoader(open_stream(), _BATCH)
        with closing(loader):
            # The loader's counts add up over epochs.
            epochs = []
            for _ in range(2):
                for batch in loader:
                    bar.update(len(batch["index"]))
                epochs.append(loader.stats())
        floor = decode_floor(files, max(loader.num_workers, 1))
        first, both = epochs
        delivered, decoded = (both[key] - first[key] for key in _COUNTS)
        figures = {
            "images_per_s": first["images_per_s"],
            "over_decode_floor": first["images_per_s"] / floor,
            "images_decoded_per_delivered": first["amplification"],
            "first_batch_s": first["first_batch_s"],
            "second_epoch_images_per_s": both["images_per_s"],
            "second_epoch_images_decoded_per_delivered": decoded / delivered,
            "workers": float(loader.num_workers),
        }
        rounds.append(figures)
    bar.close()
    return {key: median(figures[key] for figures in rounds) for key in rounds[0]}


def _open_rows(open_stream: Open, batch_size: int, **options: int) -> StreamingDataLoader:
    return StreamingDataLoader(open_stream(camera_keys=[], **options), batch_size, num_workers=0)


def _check_once(open_stream: Open) -> Check:
    counts = Counter(_indices(_open_rows(open_stream, _BATCH)))
    num_frames = open_stream().num_frames
    held = len(counts) == num_frames and set(counts.values()) == {1}
    text = f"{len(counts)} of {num_frames} frames, each {max(counts.values())} time"
    return "exactly once", held, text


def _check_resume(open_stream: Open) -> Check:
    """Stop at a random batch, save the state as JSON, resume with another batch size."""
    order = _indices(_open_rows(open_stream, _BATCH))
    loader, other = (_open_rows(open_stream, size) for size in (_BATCH, 2 * _BATCH + 3))
    head = _indices(islice(loader, random.randint(1, len(loader) - 1)))
    other.load_state_dict(json.loads(json.dumps(loader.state_dict())))
    held = head + _indices(other) == order
    evidence = f"stopped after {len(head)} frames, resumed with other batches"
    return "resume exact", held, evidence


def _indices(batches: Iterable[dict[str, Any]]) -> list[int]:
    return [index for batch in batches for index in batch["index"].tolist()]


def _check_ranks(open_stream: Open) -> Check:
    """Run the ranks of two world sizes one after the other; compare their global batches."""
    steps = {}
    for world_size in (1, 4):
        shape, size = {"world_size": world_size, "lanes": 48}, _BATCH // world_size
        loaders = [_open_rows(open_stream, size, rank=rank, **shape) for rank in range(world_size)]
        batches = [[batch["index"].tolist() for batch in loader] for loader in loaders]
        steps[world_size] = [sorted(chain(*step)) for step in zip(*batches, strict=True)]
    # In the last step, frames are repeated so that all ranks deliver equally many.
    held = steps[1][:-1] == steps[4][:-1]
    return "one order for 1 and 4 ranks", held, f"{len(steps[1])} global batches of equal frames"


def _as_text(checks: list[Check], speed: dict[str, float]) -> str:
    images, again = speed["images_per_s"], speed["second_epoch_images_per_s"]
    rows = [[name, "yes" if held else "NO", text] for name, held, text in checks]
    return terminal_table(["promise", "held", "evidence"], rows) + (
        f"\n\nfirst epoch   {images:,.0f} images/s, shuffled, {speed['workers']:.0f} workers: "
        f"{speed['over_decode_floor']:.2f} times raw decode speed\n"
        f"              {speed['images_decoded_per_delivered']:.2f} images decoded per image "
        f"delivered; first batch after {speed['first_batch_s']:.2f} s\n"
        f"second epoch  {again:,.0f} images/s: decoded frames come from RAM\n"
        "Raw decode speed: PyAV alone decodes the same files in order, on as many processes."
    )
