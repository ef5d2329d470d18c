# SPDX-License-Identifier: Apache-2.0
"""`bench peers`, also `make bench-peers`: robostream beside other loaders on the same files.

All loaders take turns in each round, each run in a process of its own. Then each delivers a whole
epoch of a small dataset, whose images are checked.
"""

from __future__ import annotations

import argparse
import dataclasses
import io
import itertools
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import av
import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
from PIL import Image

from robostream import config
from robostream.bench.case import SARM_S, BenchCase, BenchData, LoadRequest
from robostream.bench.loaders import LOADERS, LoaderEntry
from robostream.bench.measure import consume, limit_time
from robostream.bench.processes import MeasurementError, run_process
from robostream.bench.results import (
    Figures,
    ensure_writable,
    machine,
    median_ratio,
    medians,
    package_version,
    read_figures,
    select_named,
    write_json,
)
from robostream.bench.suite import DATASETS
from robostream.bench.tables import (
    RESULTS,
    Column,
    Publication,
    markdown_of,
    publish,
    table_of,
)
from robostream.errors import RobostreamError
from robostream.loader import share_of_cores
from robostream.meta import LeRobotDatasetMetadata
from robostream.tools import SynthSpec

Images = npt.NDArray[np.uint8]
_TIMEOUT_S = 300
# LeRobot's default of 200 MB per file puts many episodes into one.
_ONE_FILE = BenchData(
    "suite",
    replace(DATASETS["av1"].spec, video_file_mb=config.VIDEO_FILES_SIZE_IN_MB),
    f"{DATASETS['av1'].title}, one file per camera",
)
CASES = {
    case.name: case
    for case in (
        BenchCase("av1-single", DATASETS["av1"]),
        BenchCase("av1-one-file-single", _ONE_FILE),
        BenchCase("av1-sarm", DATASETS["av1"], window_s=SARM_S),
        BenchCase("h264-single", DATASETS["h264"]),
        BenchCase("images-single", DATASETS["images"]),
    )
}
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
_CHECKED_DATA = (
    BenchData("peers-check", _CHECKED, "video, several files"),
    BenchData(
        "peers-check", replace(_CHECKED, data_file_mb=100, video_file_mb=200), "video, one file"
    ),
    BenchData(
        "peers-check", replace(_CHECKED, image_cameras=2, data_file_mb=1), "images, several files"
    ),
)
_PACKAGES = ("lerobot", "torchcodec", "datasets", "torch", "av")
# The mean difference between two decoders' images of one frame is below this, in levels of 255.
# Images of different frames differ by far more.
_ROUNDING = 3.0
RESULTS_NAME = "peers.json"


def run(args: argparse.Namespace) -> int:
    """Measure, print the tables, write the JSON, and refresh a checkout if one is given."""
    ensure_writable(args.out)
    begin = time.perf_counter()
    workers = args.workers or share_of_cores(1)
    figures = compare(args.only, args.events, workers, rounds=args.rounds, seconds=args.seconds)
    figures["seconds"] = time.perf_counter() - begin
    write_json(args.out / RESULTS_NAME, figures)
    print(tables_text(figures))
    print(f"written to {args.out / RESULTS_NAME}; {figures['seconds']:.0f} s in all")
    if args.repo is not None:
        publish(args.repo, RESULTS_NAME, figures, PUBLICATION)
    return 0


def compare(
    only: Sequence[str], names: Sequence[str], workers: int, *, rounds: int, seconds: float
) -> Figures:
    """Return the rates of all loaders whose packages are installed, and what they deliver.

    `only` names loaders and `names` cases; empty means all. Each run takes `seconds`.
    """
    config.quiet_encoders()
    chosen, cases = select_named(LOADERS, only), select_named(CASES, names)
    present = [entry for entry in chosen if not entry.package or find_spec(entry.package)]
    results = [
        row for case in cases for row in _compare_case(case, present, workers, rounds, seconds)
    ]
    delivery = []
    for data in _CHECKED_DATA:
        for entry in (entry for entry in present if _stored(data) in entry.stored):
            found = _run(measure_delivery, entry, LoadRequest(str(data.open()), 8, 1))
            print(f"delivery of {entry.name}: {found}", flush=True)
            delivery.append({"contestant": entry.name, "stored": data.title, **found})
    return {
        "machine": machine(),
        "packages": {name: package_version(name) for name in _PACKAGES},
        "absent": [entry.name for entry in chosen if entry not in present],
        "workers": workers,
        "batch_size": 32,
        "rounds": rounds,
        "results": results,
        "delivery": delivery,
    }


def _stored(data: BenchData) -> str:
    return "image" if data.spec.image_cameras else "video"


def _compare_case(
    case: BenchCase, present: Sequence[LoaderEntry], workers: int, rounds: int, seconds: float
) -> list[Figures]:
    request = case.request(workers)
    found: dict[LoaderEntry, list[Figures]] = {
        entry: [] for entry in present if _stored(case.data) in entry.stored
    }
    for number, (entry, runs) in itertools.product(range(rounds), found.items()):
        runs.append(_run(measure_speed, entry, request, seconds=seconds))
        text = runs[-1].get("failed") or f"{runs[-1]['images_per_s']:,.0f} images/s"
        title = f"{case.data.title}, {case.mode}, round {number + 1}, {entry.name}"
        print(f"{title}: {text}", flush=True)
    row = {"data": case.data.title, "mode": case.mode}
    return [
        {**row, "contestant": entry.name, "how": entry.how, **_summarize(runs)}
        for entry, runs in found.items()
    ]


def _summarize(runs: Sequence[Figures]) -> Figures:
    for figures in runs:
        if "failed" in figures:
            return {"failed": figures["failed"]}
    return {**medians(runs), "images_per_s_rounds": [run["images_per_s"] for run in runs]}


def _run(function: Any, entry: LoaderEntry, request: LoadRequest, **more: Any) -> Figures:
    """Return the figures of one run in a process of its own, or the reason of its failure."""
    arguments = {"name": entry.name, "request": dataclasses.asdict(request), **more}
    environment = {"HF_HUB_OFFLINE": os.environ.get("HF_HUB_OFFLINE", "1")}  # all files are local
    try:
        found: Figures = run_process(
            function, environment=environment, timeout_s=_TIMEOUT_S, **arguments
        )
    except MeasurementError as error:
        return {"failed": error.reason}
    return found


def measure_speed(name: str, request: dict[str, Any], seconds: float) -> Figures:
    """Load batches in this process until the time is up or the epoch ends; return the rates."""
    import torch

    torch.set_num_threads(1)
    asked = LoadRequest(**request)
    begin = time.perf_counter()
    batches = LOADERS[name].open(asked)
    opened_s = time.perf_counter() - begin
    times = consume(limit_time(batches, seconds))
    if not times.num_measured:
        raise RobostreamError("no batch arrived after the first one")
    rate = times.num_measured / times.steady_s
    return {
        "samples_per_s": rate,
        "images_per_s": rate * asked.images_per_sample,
        "first_batch_s": opened_s + times.arrivals_s[0],
        "samples": times.num_measured,
    }


def measure_delivery(name: str, request: dict[str, Any]) -> Figures:
    """Check what a loader delivers, in this process."""
    import torch

    torch.set_num_threads(1)
    return check_delivery(LOADERS[name], LoadRequest(**request))


def check_delivery(entry: LoaderEntry, request: LoadRequest) -> Figures:
    """Return counts of one epoch, and whether another worker changes the order.

    Counts missing and repeated frames, and images that are not those of their frame.
    """
    meta = LeRobotDatasetMetadata("bench/delivery", root=request.root)
    expected = expected_images(Path(request.root))
    order: list[int] = []
    distinct: list[int] = []
    wrong = 0
    ends = meta.episodes["dataset_to_index"]
    for batch in entry.open(request):
        indices = np.asarray(batch["index"]).reshape(-1)
        order += indices.tolist()
        distinct.append(len(np.unique(np.searchsorted(ends, indices, side="right"))))
        wrong += sum(
            not is_right(batch[key][place], images, index)
            for place, index in enumerate(indices.tolist())
            for key, images in expected.items()
        )
    num_seen = len(set(order))
    others = entry.open(replace(request, workers=request.workers + 1))
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


def expected_images(root: Path) -> dict[str, Images]:
    """Return every image of a dataset by camera, decoded file by file without robostream's decoder.

    Each array is (frames, height, width, 3).
    """
    meta = LeRobotDatasetMetadata("bench/delivery", root=root)
    found = {key: _from_videos(meta, root, key) for key in meta.video_keys}
    return found | {key: _from_rows(root, key) for key in meta.camera_keys if key not in found}


def _from_videos(meta: LeRobotDatasetMetadata, root: Path, key: str) -> Images:
    files: dict[Path, Images] = {}
    images = []
    for episode in range(meta.total_episodes):
        path = root / meta.get_video_file_path(episode, key)
        if path not in files:
            with av.open(str(path)) as container:
                frames = [f.to_ndarray(format="rgb24") for f in container.decode(video=0)]
            files[path] = np.stack(frames)
        first = round(float(meta.episodes[f"videos/{key}/from_timestamp"][episode]) * meta.fps)
        images.append(files[path][first : first + int(meta.episodes["length"][episode])])
    return np.concatenate(images)


def _from_rows(root: Path, key: str) -> Images:
    rows: list[Any] = pq.read_table(root / "data", columns=["index", key]).sort_by("index")[key]
    return np.stack([np.asarray(Image.open(io.BytesIO(row["bytes"].as_py()))) for row in rows])


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
    tables = [
        table_of(_with_ratios(figures["results"]), _SPEED),
        table_of(figures["delivery"], _DELIVERY),
    ]
    return "\n\n".join([*tables, "\n".join(_remarks(figures))])


def _with_ratios(results: Sequence[Figures]) -> list[Figures]:
    """Return the rows with how much faster robostream is on the same data."""
    ours = {
        (row["data"], row["mode"]): row["images_per_s_rounds"]
        for row in results
        if row["contestant"] == "robostream" and "failed" not in row
    }

    def faster(row: Figures) -> str:
        known = ours.get((row["data"], row["mode"]))
        if known is None or "failed" in row or row["contestant"] == "robostream":
            return ""
        return f"{median_ratio(known, row['images_per_s_rounds']):.1f} times"

    return [row | {"faster": faster(row)} for row in results]


def _docs_block(repo: Path) -> str:
    """Return the tables of docs/benchmarks.md."""
    figures = read_figures(repo / RESULTS / RESULTS_NAME)
    versions = ", ".join(
        f"{name} {number}" for name, number in figures["packages"].items() if number
    )
    return "\n\n".join(
        [
            f"On {figures['machine']['cpus']} cores of {figures['machine']['cpu']}; "
            f"{figures['workers']} workers each, batches of {figures['batch_size']}, uint8; "
            f"medians of {figures['rounds']} interleaved rounds. {versions}.",
            markdown_of(_with_ratios(figures["results"]), _SPEED),
            "What each delivers in one epoch of a small dataset; every image is compared with the "
            "one decoded from the file:",
            markdown_of(figures["delivery"], _DELIVERY),
            "\n".join(f"- {remark}" for remark in _remarks(figures)),
        ]
    ).rstrip()


def _remarks(figures: Figures) -> list[str]:
    """Return why some loaders have no figures, each reason once."""
    failed = [
        f"{row['contestant']} failed ({row.get('data') or row['stored']}): {row['failed']}"
        for row in (*figures["results"], *figures["delivery"])
        if "failed" in row
    ]
    absent = [f"{name} is left out: its package is not installed" for name in figures["absent"]]
    return [*dict.fromkeys(failed), *absent]


PUBLICATION = Publication(Path("docs/benchmarks.md"), {"peers": _docs_block})
