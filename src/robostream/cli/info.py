# SPDX-License-Identifier: Apache-2.0
"""`robostream info`: show the contents of a dataset, from its metadata alone."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from robostream.byte_sizes import format_bytes
from robostream.cli.arguments import add_dataset, add_json, positive, terminal_table
from robostream.meta import (
    LeRobotDatasetMetadata,
    image_shape,
    is_being_recorded,
    is_depth,
    location_of,
)
from robostream.tools import measure_dataset

EXAMPLES = """\
  robostream info ./my-dataset
  robostream info lerobot/pusht --episodes 5      with the first rows of the episode table
  robostream info s3://bucket/my-dataset --json   for a script
"""
_SHOWN = 8  # tasks, and names of a feature's entries; the rest is only counted
_CAMERA_HEADER = ("camera", "kind", "stored as", "size", "codec", "pixels", "key frame", "crf")
_EPISODE_HEADER = ("episode", "frames", "seconds", "first index", "data file", "tasks")

_Row = tuple[str, str]


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `robostream info`."""
    add_dataset(parser)
    name_help = "treat DATASET as a Hub name, even if a folder here has the same name"
    parser.add_argument("--repo-id", action="store_true", help=name_help)
    rows_help = "show the first N episodes too"
    parser.add_argument("--episodes", type=positive, metavar="N", default=0, help=rows_help)
    add_json(parser, "everything")


def run(args: argparse.Namespace) -> int:
    """Print the contents of the dataset."""
    dataset = f"hf://datasets/{args.dataset}" if args.repo_id else args.dataset
    meta = LeRobotDatasetMetadata(dataset, revision=args.revision)
    print(_as_json(meta, args.episodes) if args.json else _as_text(meta, args.episodes))
    return 0


def _as_json(meta: LeRobotDatasetMetadata, shown_episodes: int) -> str:
    content = {
        "dataset": meta.url_root,
        "revision": meta.revision,
        **meta.info.to_dict(),
        "hours": meta.total_frames / meta.fps / 3600,
        "tasks": meta.tasks.index,
        "cameras": {key: _camera(meta.features[key]) for key in meta.camera_keys},
        "features_with_statistics": list(meta.stats or {}),
        "files": _files(meta),
        "unfinished_recording": is_being_recorded(meta.root),
        "fingerprint": meta.fingerprint,
        "episodes": meta.episodes[:shown_episodes],
    }
    return json.dumps(content, indent=2, ensure_ascii=False)


def _as_text(meta: LeRobotDatasetMetadata, shown_episodes: int) -> str:
    features = [
        (key, entry["dtype"], "x".join(map(str, entry["shape"])), _format_names(entry["names"]))
        for key, entry in meta.features.items()
    ]
    parts = [
        terminal_table(("what", "value"), list(_summary(meta))),
        terminal_table(("feature", "dtype", "shape", "names"), features),
    ]
    if meta.camera_keys:
        rows = [(key, *_camera_cells(meta.features[key])) for key in meta.camera_keys]
        parts.append(terminal_table(_CAMERA_HEADER, rows))
    if shown_episodes and len(meta.episodes):
        parts.append(terminal_table(_EPISODE_HEADER, _episode_rows(meta, shown_episodes)))
    return "\n\n".join(parts)


def _summary(meta: LeRobotDatasetMetadata) -> Iterator[_Row]:
    info, tasks = meta.info, meta.tasks.index
    yield "dataset", meta.url_root
    if meta.revision:
        yield "revision", meta.revision
    yield "version", info.codebase_version
    yield "robot", info.robot_type or "not recorded"
    yield "episodes", _format_lengths(meta.episodes["length"]) if len(meta.episodes) else "0"
    yield "frames", f"{info.total_frames:,} at {info.fps} fps"
    yield "duration", _format_time(info.total_frames / info.fps)
    yield "tasks", f"{len(tasks):,}"
    yield from (("", f"{number}: {text}") for number, text in enumerate(tasks[:_SHOWN]))
    if len(tasks) > _SHOWN:
        yield "", f"... {len(tasks) - _SHOWN:,} more"
    described = [key for key in info.features if key in (meta.stats or {})]
    yield "statistics", f"for {len(described)} of {len(info.features)} features"
    if files := _files(meta):
        size = files["size_bytes"]
        here = "some are missing here" if size is None else format_bytes(size)
        yield "files", f"{files['parquet']:,} Parquet, {files['mp4']:,} MP4; {here}"
    limits = f"{meta.data_files_size_in_mb} MB of rows, {meta.video_files_size_in_mb} MB of video"
    limits = "every episode" if info.is_v2 else limits
    yield "new file at", f"{limits}; {meta.chunks_size:,} files per chunk"
    if is_being_recorded(meta.root):
        yield "recording", "not finished; resume and finalize() it to see all episodes"
    yield "fingerprint", meta.fingerprint


def _format_lengths(lengths: npt.NDArray[np.int64]) -> str:
    shortest, longest = lengths.min(), lengths.max()
    spread = f"{shortest:,}" if shortest == longest else f"{shortest:,} to {longest:,}"
    return f"{len(lengths):,}, of {spread} frames each"


def _files(meta: LeRobotDatasetMetadata) -> dict[str, int | None] | None:
    """Return the number of local files and their bytes, None for bytes if some are missing."""
    if location_of(meta).local_root is None or not len(meta.episodes):
        return None  # listing files on a network may take long
    sizes = measure_dataset(meta)
    return {
        "parquet": sizes.num_data_files,
        "mp4": sizes.num_video_files,
        "size_bytes": sizes.data_bytes + sizes.video_bytes if sizes.measured else None,
    }


def _camera(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return what info.json says about a camera; None for missing entries."""
    info = entry.get("info") or entry.get("video_info") or {}
    channels, height, width = image_shape(entry)
    return {
        "dtype": entry["dtype"],
        "width": width,
        "height": height,
        "channels": channels,
        "is_depth": is_depth(entry),
        "depth_unit": info.get("depth_unit"),
        "codec": info.get("video.codec"),
        "pix_fmt": info.get("video.pix_fmt"),
        "g": info.get("video.g"),
        "crf": info.get("video.crf"),
    }


def _camera_cells(entry: Mapping[str, Any]) -> Sequence[str]:
    camera = _camera(entry)
    kind = f"depth in {camera['depth_unit'] or 'unknown unit'}" if camera["is_depth"] else "colour"
    size = f"{camera['width']}x{camera['height']}"
    codec, pixels, crf = (_or_dash(camera[name]) for name in ("codec", "pix_fmt", "crf"))
    key_frame = "-" if camera["g"] is None else f"every {camera['g']}"
    return (kind, camera["dtype"], size, codec, pixels, key_frame, crf)


def _episode_rows(meta: LeRobotDatasetMetadata, count: int) -> Sequence[Sequence[object]]:
    return [
        (
            row["episode_index"],
            row["length"],
            row["length"] / meta.fps,
            row["dataset_from_index"],
            meta.get_data_file_path(row["episode_index"]).as_posix(),
            "; ".join(row.get("tasks") or []),
        )
        for row in meta.episodes[:count]
    ]


def _format_names(names: Any) -> str:
    if isinstance(names, Mapping):  # {"motors": [...]}, as older recorders wrote it
        return "; ".join(f"{key}: {_format_names(value)}" for key, value in names.items())
    if not isinstance(names, list | tuple):
        return _or_dash(names)
    shown = ", ".join(str(name) for name in names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown}, ... {len(names)} in all"


def _format_time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} minutes" if seconds < 7200 else f"{seconds / 3600:,.1f} hours"


def _or_dash(value: object) -> str:
    return "-" if value is None else str(value)
