# SPDX-License-Identifier: Apache-2.0
"""What is in a dataset: `robostream info`, `inspect` and `stats`."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from robostream import tools
from robostream.assemble import DatasetLocation, SampleOptions, compute_stats, open_dataset
from robostream.byte_sizes import format_bytes
from robostream.cli import arguments as cli
from robostream.errors import SelectionError
from robostream.meta import (
    DEFAULT_FEATURES,
    Features,
    LeRobotDatasetMetadata,
    Stats,
    as_lists,
    dimension_names,
    image_shape,
    is_being_recorded,
    is_depth,
    location_of,
)

_INFO_EXAMPLES = """\
  robostream info ./my-dataset
  robostream info lerobot/pusht --episodes 5      with the first rows of the episode table
  robostream info s3://bucket/my-dataset --json   for a script
"""
_MOST_NAMES = 8  # tasks, and names of a feature's entries; the rest is only counted
_CAMERA_HEADER = ("camera", "kind", "stored as", "size", "codec", "pixels", "key frame", "crf")
_EPISODE_HEADER = ("episode", "frames", "seconds", "first index", "data file", "tasks")


def _configure_info(parser: argparse.ArgumentParser) -> None:
    cli.add_dataset(parser)
    name_help = "treat DATASET as a Hub name, even if a folder here has the same name"
    cli.add_flag(parser, "--repo-id", name_help)
    rows_help = "show the first N episodes too"
    parser.add_argument("--episodes", type=cli.positive, metavar="N", default=0, help=rows_help)
    cli.add_json(parser, "everything")


def _run_info(args: argparse.Namespace) -> int:
    dataset = f"hf://datasets/{args.dataset}" if args.repo_id else args.dataset
    meta = LeRobotDatasetMetadata(dataset, revision=args.revision)
    if not args.json:
        print(_info_text(meta, args.episodes))
        return 0
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
        "episodes": meta.episodes[: args.episodes],
    }
    print(json.dumps(content, indent=2, ensure_ascii=False))
    return 0


def _info_text(meta: LeRobotDatasetMetadata, shown_episodes: int) -> str:
    features = [
        (key, entry["dtype"], "x".join(map(str, entry["shape"])), _format_names(entry["names"]))
        for key, entry in meta.features.items()
    ]
    parts = [cli.terminal_table(("what", "value"), list(_summary(meta)))]
    parts.append(cli.terminal_table(("feature", "dtype", "shape", "names"), features))
    if meta.camera_keys:
        rows = [(key, *_camera_cells(meta.features[key])) for key in meta.camera_keys]
        parts.append(cli.terminal_table(_CAMERA_HEADER, rows))
    if shown_episodes and len(meta.episodes):
        parts.append(cli.terminal_table(_EPISODE_HEADER, _episode_rows(meta, shown_episodes)))
    return "\n\n".join(parts)


def _summary(meta: LeRobotDatasetMetadata) -> Iterator[tuple[str, str]]:
    info, tasks = meta.info, meta.tasks.index
    yield "dataset", meta.url_root
    if meta.revision:
        yield "revision", meta.revision
    yield "version", info.codebase_version
    yield "robot", info.robot_type or "not recorded"
    lengths = meta.episodes["length"]
    ends = sorted({lengths.min(), lengths.max()}) if len(lengths) else ()
    spread = " to ".join(f"{end:,}" for end in ends)
    yield "episodes", f"{len(lengths):,}, of {spread} frames each" if ends else "0"
    yield "frames", f"{info.total_frames:,} at {info.fps} fps"
    yield "duration", _format_time(info.total_frames / info.fps)
    yield "tasks", f"{len(tasks):,}"
    yield from (("", f"{number}: {text}") for number, text in enumerate(tasks[:_MOST_NAMES]))
    if len(tasks) > _MOST_NAMES:
        yield "", f"... {len(tasks) - _MOST_NAMES:,} more"
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


def _files(meta: LeRobotDatasetMetadata) -> dict[str, int | None] | None:
    """Return the number of local files and their bytes, None for bytes if some are missing."""
    if location_of(meta).local_root is None or not len(meta.episodes):
        return None  # listing files on a network may take long
    sizes = tools.measure_dataset(meta)
    return {
        "parquet": sizes.num_data_files,
        "mp4": sizes.num_video_files,
        "size_bytes": sizes.data_bytes + sizes.video_bytes if sizes.measured else None,
    }


def _camera(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return what info.json says about a camera; None for missing entries."""
    info = entry.get("info") or entry.get("video_info") or {}
    channels, height, width = image_shape(entry)
    recorded = ("depth_unit", "video.codec", "video.pix_fmt", "video.g", "video.crf")
    return {
        "dtype": entry["dtype"],
        **{"width": width, "height": height, "channels": channels},
        "is_depth": is_depth(entry),
        **{key.removeprefix("video."): info.get(key) for key in recorded},
    }


def _camera_cells(entry: Mapping[str, Any]) -> Sequence[str]:
    camera = _camera(entry)
    kind = f"depth in {camera['depth_unit'] or 'unknown unit'}" if camera["is_depth"] else "colour"
    size = f"{camera['width']}x{camera['height']}"
    codec, pixels, crf = (_or_dash(camera[name]) for name in ("codec", "pix_fmt", "crf"))
    key_frame = "-" if camera["g"] is None else f"every {camera['g']}"
    return (kind, camera["dtype"], size, codec, pixels, key_frame, crf)


def _episode_rows(meta: LeRobotDatasetMetadata, count: int) -> Sequence[Sequence[object]]:
    rows = []
    for row in meta.episodes[:count]:
        episode, length, tasks = row["episode_index"], row["length"], row.get("tasks") or []
        file = meta.get_data_file_path(episode).as_posix()
        first_index = row["dataset_from_index"]
        rows.append((episode, length, length / meta.fps, first_index, file, "; ".join(tasks)))
    return rows


def _format_names(names: Any) -> str:
    if isinstance(names, Mapping):  # {"motors": [...]}, as older recorders wrote it
        return "; ".join(f"{key}: {_format_names(value)}" for key, value in names.items())
    if not isinstance(names, list | tuple):
        return _or_dash(names)
    shown = ", ".join(str(name) for name in names[:_MOST_NAMES])
    return shown if len(names) <= _MOST_NAMES else f"{shown}, ... {len(names)} in all"


def _format_time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} minutes" if seconds < 7200 else f"{seconds / 3600:,.1f} hours"


def _or_dash(value: object) -> str:
    return "-" if value is None else str(value)


_INSPECT_EXAMPLES = """\
  robostream inspect ./my-dataset --html page.html
  robostream inspect lerobot/pusht --episode 7 --html page.html --png sheet.png
"""


def _configure_inspect(parser: argparse.ArgumentParser) -> None:
    cli.add_dataset(parser)
    add = partial(cli.add_option, parser)
    add("--episode", cli.natural, 0, "the episode whose frames and curves are shown")
    several = {"nargs": "+", "metavar": "KEY", "dest": "camera_keys"}
    add("--cameras", str, None, "only these cameras (all)", **several)
    page_help = "write one HTML file that holds its images and fetches nothing"
    parser.add_argument("--html", type=Path, metavar="PAGE", help=page_help)
    sheet_help = "write a contact sheet of the episode, a row for each camera"
    parser.add_argument("--png", type=Path, metavar="SHEET", help=sheet_help)


def _run_inspect(args: argparse.Namespace) -> int:
    """Write the page and the sheet; exit code 1 if a camera cannot be read."""
    if not (args.html or args.png):
        args.parser.error("want --html PAGE, --png SHEET or both: say what to make")
    location = DatasetLocation(args.dataset, revision=args.revision)
    dataset = open_dataset(location, SampleOptions(camera_keys=args.camera_keys))
    view = tools.view_episode(dataset, args.episode)
    if args.png:
        tools.save_sheet(args.png, tools.sheet_of(dataset, view))
    if args.html:
        page = tools.inspect_html(dataset, view)
        tools.save_result(args.html, page.encode())
    for path in filter(None, (args.html, args.png)):
        print(f"written to {path}")
    if command := tools.viewer_command(dataset.meta, args.episode):
        print(f"LeRobot's own viewer: {shlex.join(command)}")
    return 1 if any(isinstance(strip, str) for strip in view.strips.values()) else 0


_STATS_EXAMPLES = """\
  robostream stats ./my-dataset                all numbers, exact quantiles; decodes nothing
  robostream stats lerobot/pusht --episodes 0:100 --features action observation.state
  robostream stats ./my-dataset --images --write ./my-dataset   replaces its meta/stats.json
  robostream stats ./my-dataset --episodes 0:80 --write train.json
"""
_STATISTICS = ("min", "max", "mean", "std", "q01", "q10", "q50", "q90", "q99")
# Rounding of float32 sums; more is another set of frames.
_ROUNDING = 1e-4


def _configure_stats(parser: argparse.ArgumentParser) -> None:
    add = partial(cli.add_option, parser)
    cli.add_dataset(parser)
    cli.add_episodes(parser)
    add("--features", str, None, "only these features (all)", nargs="+", metavar="KEY")
    images_help = "decode cameras too, the frames that LeRobot samples; takes much longer"
    cli.add_flag(parser, "--images", images_help)
    write_help = (
        "write the statistics: a .json file, or the folder of a dataset, whose meta/stats.json is "
        "replaced"
    )
    parser.add_argument("--write", type=Path, metavar="DEST", help=write_help)
    cli.add_json(parser, "all statistics, as in stats.json,")


def _run_stats(args: argparse.Namespace) -> int:
    path = tools.find_stats_file(args.write) if args.write else None
    location = DatasetLocation(args.dataset, revision=args.revision)
    dataset = open_dataset(location, SampleOptions(episodes=args.episodes))
    stats = compute_stats(dataset, images=args.images, keys=args.features, progress=True)
    # Statistics of an opened dataset have another unit of depth than the recorded ones.
    meta = LeRobotDatasetMetadata(args.dataset, revision=args.revision)
    frames, episodes = dataset.selection.num_frames, len(dataset.selection.episodes)
    text = stats_table(stats, meta.features)
    text += f"\n\n{frames:,} frames of {episodes:,} of {meta.total_episodes:,} episodes"
    if episodes == meta.total_episodes:
        numbers = {k: stats[k] for k in _shown(stats) if k not in meta.camera_keys}
        differences = tools.compare_stats(numbers, meta.stats or {})
        text += f"\n{_describe(differences, meta.info.stats_path)}"
    cli.print_result(args, {key: as_lists(entry) for key, entry in stats.items()}, text)
    if path is not None:
        tools.write_stats(path, stats, meta.stats or {}, meta.features)
        kept = [key for key in meta.stats or {} if key not in stats]
        more = f"; {', '.join(kept)} as recorded" if kept else ""
        print(f"written to {path}{more}", file=sys.stderr if args.json else sys.stdout)
    return 0


def _shown(stats: Stats) -> list[str]:
    """Return the features of the table: those of every dataset only if there are no others."""
    return [key for key in stats if key not in DEFAULT_FEATURES] or list(stats)


def stats_table(stats: Stats, features: Features) -> str:
    """Return a table that fits the terminal, with a row for each dimension."""
    rows: list[Sequence[object]] = []
    for key in _shown(stats):
        values = np.stack([stats[key][name].ravel() for name in _STATISTICS], axis=1)
        names = dimension_names(features[key], len(values))
        rows += [
            (f"{key} {n}".strip(), *map(float, row)) for n, row in zip(names, values, strict=True)
        ]
    return cli.terminal_table(("feature", *_STATISTICS), rows)


def _describe(differences: Sequence[tools.StatsDifference], file: str) -> str:
    """Return how the recorded statistics of numbers compare, in one or a few lines."""
    lacking = [found.feature for found in differences if found.moments is None]
    lines = [f"{file} lacks {', '.join(lacking)}"] if lacking else []
    if found := _largest({d.feature: d.moments for d in differences}):
        verdict = "agree with" if found[1] <= _ROUNDING else "DIFFER from"
        most = f"{found[1]:.2g} of the range ({found[0]})"
        lines.append(f"min, max, mean and std {verdict} {file}: by at most {most}")
    if found := _largest({d.feature: d.quantiles for d in differences}):
        most = f"{found[1]:.2g} of the range ({found[0]})"
        why = "LeRobot records bounds over episodes, these are exact"
        lines.append(f"quantiles differ by at most {most}: {why}")
    return "\n".join(lines)


def _largest(differences: dict[str, float | None]) -> tuple[str, float] | None:
    known = [(feature, value) for feature, value in differences.items() if value is not None]
    return max(known, key=lambda pair: pair[1], default=None)


SUBCOMMANDS = {
    "info": cli.Command(_INFO_EXAMPLES, _configure_info, _run_info),
    "inspect": cli.Command(_INSPECT_EXAMPLES, _configure_inspect, _run_inspect, (SelectionError,)),
    "stats": cli.Command(_STATS_EXAMPLES, _configure_stats, _run_stats),
}
