# SPDX-License-Identifier: Apache-2.0
"""`bench peers`, also `make bench-peers`: robostream beside other loaders on the same files.

All loaders take turns in each round, each run in a process of its own. Then each delivers a whole
epoch of a small dataset, whose images are checked.
"""

from __future__ import annotations

import argparse
import io
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import av
import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
import torch
from PIL import Image

from robostream import config
from robostream.bench import results
from robostream.bench.case import SARM_S, BenchCase, BenchData
from robostream.bench.loaders import LOADERS, LoaderEntry, OpenLoader
from robostream.bench.measure import measure_loading, run_rounds
from robostream.bench.processes import MeasurementError, run_process
from robostream.bench.results import Figures
from robostream.bench.suite import DATASETS
from robostream.bench.tables import Column, Publication, Table
from robostream.loader import share_of_cores
from robostream.meta import LeRobotDatasetMetadata
from robostream.tools import SynthSpec

Images = npt.NDArray[np.uint8]
_TIMEOUT_S = 300
_AV1 = DATASETS["av1"]
# LeRobot's default of 200 MB per file puts many episodes into one.
_ONE_FILE = replace(
    _AV1,
    spec=replace(_AV1.spec, video_file_mb=config.VIDEO_FILES_SIZE_IN_MB),
    title=f"{_AV1.title}, one file per camera",
)
CASES = (
    BenchCase("av1-single", _AV1),
    BenchCase("av1-one-file-single", _ONE_FILE),
    BenchCase("av1-sarm", _AV1, window_s=SARM_S),
    BenchCase("h264-single", DATASETS["h264"]),
    BenchCase("images-single", DATASETS["images"]),
)
# Small enough to check every image, with several files, as large datasets have.
_CHECKED = SynthSpec(
    episodes=12,
    min_frames=18,
    max_frames=26,
    cameras=2,
    width=96,
    height=96,
    fps=5,
    crf=18,
    data_file_mb=0.01,
    video_file_mb=0.1,
)
_CHECKED_SPECS = {
    "video, several files": _CHECKED,
    "video, one file": replace(_CHECKED, data_file_mb=100, video_file_mb=200),
    "images, several files": replace(_CHECKED, image_cameras=2, data_file_mb=1),
}
_PACKAGES = ("lerobot", "torchcodec", "datasets", "torch", "av")
# The mean difference between two decoders' images of one frame is below this, in levels of 255.
# Images of different frames differ by far more.
_ROUNDING = 3.0


def run(args: argparse.Namespace) -> int:
    """Measure, print the tables, write the JSON, and refresh a checkout if one is given."""
    results.ensure_writable(args.out)
    begin = time.perf_counter()
    workers = args.workers or share_of_cores(1)
    figures = compare(args.only, args.events, workers, rounds=args.rounds, seconds=args.seconds)
    figures["seconds"] = time.perf_counter() - begin
    path = args.out / PUBLICATION.results
    results.write_json(path, figures)
    print(tables_text(figures))
    print(f"written to {path}; {figures['seconds']:.0f} s in all")
    if args.repo is not None:
        PUBLICATION.publish(args.repo, figures)
    return 0


def compare(
    only: Sequence[str], names: Sequence[str], workers: int, *, rounds: int, seconds: float
) -> Figures:
    """Return the rates of all loaders whose packages are installed, and what they deliver.

    `only` names loaders and `names` cases; empty means all. Each run takes `seconds`.
    """
    chosen = results.select_named(LOADERS.values(), only)
    cases = [replace(case, workers=workers) for case in results.select_named(CASES, names)]
    present = [entry for entry in chosen if not entry.package or find_spec(entry.package)]
    checked = [
        BenchCase("check", BenchData("peers-check", spec, title), batch_size=8, workers=1)
        for title, spec in _CHECKED_SPECS.items()
    ]
    return {
        "machine": results.machine(),
        "packages": {name: results.package_version(name) for name in _PACKAGES},
        "absent": [entry.name for entry in chosen if entry not in present],
        "workers": workers,
        "batch_size": 32,
        "rounds": rounds,
        "results": [row for case in cases for row in _race(case, present, rounds, seconds)],
        "delivery": [
            {"contestant": entry.name, "stored": case.data.title}
            | _run(f"delivery of {entry.name}", count_delivered, entry, case)
            for case in checked
            for entry in _able(present, case)
        ],
    }


def _able(entries: Iterable[LoaderEntry], case: BenchCase) -> list[LoaderEntry]:
    """Return the loaders that read this kind of cameras."""
    stored = "image" if case.data.spec.image_cameras else "video"
    return [entry for entry in entries if stored in entry.stored]


def _race(
    case: BenchCase, present: Sequence[LoaderEntry], rounds: int, seconds: float
) -> list[Figures]:
    """Return the rates of each loader that can read the dataset."""
    entries = {entry.name: entry for entry in _able(present, case)}
    title = f"{case.data.title}, {case.mode}"
    runs = {
        name: partial(_run, f"{title}, {name}", measure_speed, entry, case, seconds=seconds)
        for name, entry in entries.items()
    }
    return [
        {"data": case.data.title, "mode": case.mode, "contestant": name, "how": entries[name].how}
        | _summarize(found)
        for name, found in run_rounds(runs, rounds).items()
    ]


def _summarize(runs: Sequence[Figures]) -> Figures:
    for figures in runs:
        if "failed" in figures:
            return figures
    return {**results.medians(runs), "images_per_s_rounds": [run["images_per_s"] for run in runs]}


def _run(
    title: str, function: Callable[..., Any], entry: LoaderEntry, case: BenchCase, **more: Any
) -> Figures:
    """Print and return the figures of a run in a process of its own, or the reason it failed."""
    environment = {"HF_HUB_OFFLINE": os.environ.get("HF_HUB_OFFLINE", "1")}  # all files are local
    arguments = {"open_loader": entry.open, "case": case, **more}
    try:
        found: Figures = run_process(
            function, environment=environment, timeout_s=_TIMEOUT_S, **arguments
        )
    except MeasurementError as error:
        found = {"failed": error.reason}
    rate = found.get("images_per_s")
    print(f"{title}: {found if rate is None else f'{rate:,.0f} images/s'}", flush=True)
    return found


def measure_speed(open_loader: OpenLoader, case: BenchCase, seconds: float) -> Figures:
    """Load batches in this process until the time is up or the epoch ends; return the rates."""
    _, figures = measure_loading(case, open_loader, seconds=seconds)
    shown = ("samples_per_s", "images_per_s", "first_batch_s", "samples")
    return {field: figures[field] for field in shown}


def count_delivered(open_loader: OpenLoader, case: BenchCase) -> Figures:
    """Return counts of one epoch, and whether another worker changes the order.

    Counts missing and repeated frames, and images that are not those of their frame.
    """
    torch.set_num_threads(1)
    meta = LeRobotDatasetMetadata("bench/delivery", root=case.data.open())
    expected = expected_images(meta)
    order: list[int] = []
    distinct: list[int] = []
    wrong = 0
    ends = meta.episodes["dataset_to_index"]
    for batch in open_loader(case):
        indices = np.asarray(batch["index"]).reshape(-1)
        order += indices.tolist()
        distinct.append(len(np.unique(np.searchsorted(ends, indices, side="right"))))
        wrong += sum(
            not is_right(batch[key][place], images, index)
            for place, index in enumerate(indices.tolist())
            for key, images in expected.items()
        )
    num_seen = len(set(order))
    others = open_loader(replace(case, workers=(case.workers or 0) + 1))
    other = [int(index) for batch in others for index in np.asarray(batch["index"]).reshape(-1)]
    return {
        "frames": meta.total_frames,
        "delivered": len(order),
        "missing": meta.total_frames - num_seen,
        "repeated": len(order) - num_seen,
        "wrong_pictures": wrong,
        "pictures": len(order) * len(expected),
        "same_order_with_more_workers": order == other,
        "episodes_per_batch": float(np.mean(distinct)),
    }


def is_right(image: Any, images: Images, index: int) -> bool:
    """Return whether an image is closest to that of its own frame, among its neighbours.

    Decoders round colours differently; neighbouring frames differ by more than that.
    """
    given = in_levels(image)
    near = range(max(0, index - 3), min(len(images), index + 4))
    gaps = {at: float(np.abs(images[at] - given).mean()) for at in near}
    return gaps[index] <= min(gaps.values()) + 1e-6 and gaps[index] < _ROUNDING


def in_levels(image: Any) -> npt.NDArray[np.float32]:
    """Return an image as (height, width, 3) from 0 to 255; some loaders give 0 to 1. Pure."""
    given = np.asarray(image)
    levels = given.astype(np.float32) * (255 if given.dtype.kind == "f" else 1)
    return levels.transpose(1, 2, 0) if levels.shape[0] == 3 else levels


def expected_images(meta: LeRobotDatasetMetadata) -> dict[str, Images]:
    """Return every image of a dataset by camera, decoded file by file without robostream's decoder.

    Each array is (frames, height, width, 3).
    """
    return {
        key: _from_videos(meta, key) if key in meta.video_keys else _from_rows(meta, key)
        for key in meta.camera_keys
    }


def _from_videos(meta: LeRobotDatasetMetadata, key: str) -> Images:
    files: dict[Path, Images] = {}
    images = []
    for episode in range(meta.total_episodes):
        path = Path(meta.root, meta.get_video_file_path(episode, key))
        if path not in files:
            with av.open(str(path)) as container:
                frames = [f.to_ndarray(format="rgb24") for f in container.decode(video=0)]
            files[path] = np.stack(frames)
        first = round(float(meta.episodes[f"videos/{key}/from_timestamp"][episode]) * meta.fps)
        images.append(files[path][first : first + int(meta.episodes["length"][episode])])
    return np.concatenate(images)


def _from_rows(meta: LeRobotDatasetMetadata, key: str) -> Images:
    table = pq.read_table(Path(meta.root, "data"), columns=["index", key]).sort_by("index")
    rows: list[Any] = table[key].to_pylist()
    return np.stack([np.asarray(Image.open(io.BytesIO(row["bytes"]))) for row in rows])


_YES_NO = {True: "yes", False: "no", None: ""}  # None: the loader failed
_SPEED: dict[str, Column] = {
    "data": "data",
    "mode": "mode",
    "loader": "contestant",
    "used with": "how",
    "samples/s": lambda row: "failed" if "failed" in row else row["samples_per_s"],
    "images/s": lambda row: row.get("images_per_s", ""),
    "robostream is faster": "faster",
    "first batch, s": lambda row: row.get("first_batch_s", ""),
}
_DELIVERY: dict[str, Column] = {
    "loader": "contestant",
    "cameras": "stored",
    "frames missing": lambda row: _of(row, "missing", "frames", failed="failed"),
    "frames repeated": lambda row: row.get("repeated", ""),
    "wrong images": lambda row: _of(row, "wrong_pictures", "pictures", failed=""),
    "same order with another worker": lambda row: _YES_NO[row.get("same_order_with_more_workers")],
    "episodes per batch of 8": lambda row: row.get("episodes_per_batch", ""),
}


def _of(row: Figures, count: str, total: str, *, failed: str) -> str:
    return failed if "failed" in row else f"{row[count]} of {row[total]}"


def tables_text(figures: Figures) -> str:
    """Return the tables for a terminal. Pure."""
    speed, delivery = _tables(figures)
    return "\n\n".join([speed.text(), delivery.text(), "\n".join(_remarks(figures))])


def _tables(figures: Figures) -> tuple[Table, Table]:
    """Return the tables of rates, with how much faster robostream is, and of deliveries."""
    ours = {
        (row["data"], row["mode"]): row["images_per_s_rounds"]
        for row in figures["results"]
        if row["contestant"] == "robostream" and "failed" not in row
    }

    def faster(row: Figures) -> str:
        known = ours.get((row["data"], row["mode"]))
        if known is None or "failed" in row or row["contestant"] == "robostream":
            return ""
        return f"{median(results.ratios(known, row['images_per_s_rounds'])):.1f} times"

    rows = [row | {"faster": faster(row)} for row in figures["results"]]
    return Table.of(rows, _SPEED), Table.of(figures["delivery"], _DELIVERY)


def _docs_block(repo: Path) -> str:
    """Return the tables of docs/benchmarks.md."""
    figures = PUBLICATION.read(repo)
    versions = ", ".join(
        f"{name} {number}" for name, number in figures["packages"].items() if number
    )
    speed, delivery = _tables(figures)
    parts = [
        f"On {figures['machine']['cpus']} cores of {figures['machine']['cpu']}; "
        f"{figures['workers']} workers each, batches of {figures['batch_size']}, uint8; "
        f"medians of {figures['rounds']} interleaved rounds. {versions}.",
        speed.markdown(),
        "What each delivers in one epoch of a small dataset; every image is compared with the "
        "one decoded from the file:",
        delivery.markdown(),
        "\n".join(f"- {remark}" for remark in _remarks(figures)),
    ]
    return "\n\n".join(parts).rstrip()


def _remarks(figures: Figures) -> list[str]:
    """Return why some loaders have no figures, each reason once."""
    failed = [
        f"{row['contestant']} failed ({row.get('data') or row['stored']}): {row['failed']}"
        for row in (*figures["results"], *figures["delivery"])
        if "failed" in row
    ]
    absent = [f"{name} is left out: its package is not installed" for name in figures["absent"]]
    return [*dict.fromkeys(failed), *absent]


PUBLICATION = Publication("peers.json", {"peers": _docs_block})
