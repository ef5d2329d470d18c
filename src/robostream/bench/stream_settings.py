# SPDX-License-Identifier: Apache-2.0
"""The flags of `bench stream`: those of LeRobot's benchmark_streaming.py, and a few more."""

from __future__ import annotations

import argparse
import string
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from robostream import config
from robostream.bench.case import SARM_S
from robostream.bench.results import Figures
from robostream.errors import SelectionError
from robostream.storage import as_location, explicit_root, redact

WARMUP_BATCHES = 5
OUT_DIR = Path("benchmarks/streaming/results")
_LABEL = frozenset(string.ascii_letters + string.digits + "_-.")
# The flags that LeRobot's script lacks.
_OWN = ("revision", "frame_cache_bytes", "float32", "at_most_s", "floor_s")
# The settings that are written beside the figures.
_WRITTEN = ["source", "mode", "batch_size", "episode_pool_size", "video_decode_device"]
_WRITTEN += ["return_uint8", "num_batches", "warmup_batches"]


def _count(text: str) -> int:
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"want 0 or more, got {text}")
    return number


def _count_or_auto(text: str) -> int | None:
    return None if text == "auto" else _count(text)


def _flag(default: Any, help: str, type: Any = str, choices: Sequence[str] | None = None) -> Any:
    """Return a field that a flag of the same name sets."""
    return field(default=default, metadata={"help": help, "type": type, "choices": choices})


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """One setting to measure; the defaults are those of LeRobot's script.

    None leaves a setting to the loader.
    """

    repo_id: str
    root: str | None = _flag(None, "its folder or URL")
    data_files_root: str | None = _flag(None, "the location of data/ and videos/, if elsewhere")
    mode: str = _flag(
        "single",
        "one frame of all cameras, or 8 steps 1 s apart of every camera and the action",
        choices=("single", "sarm"),
    )
    source: str = "hub"
    batch_size: int = _flag(64, "samples per batch", _count)
    num_workers: int | None = _flag(
        8, 'worker processes, or "auto" for the loader\'s default', _count_or_auto
    )
    prefetch_factor: int | None = _flag(2, 'batches built ahead, or "auto"', _count_or_auto)
    video_decoder_cache_size: int | None = _flag(None, "video files kept open", _count)
    episode_pool_size: int = _flag(config.EPISODE_POOL_SIZE, "episodes mixed at a time", _count)
    video_decode_device: str = _flag(
        "cpu", "the device that decodes videos", choices=("cpu", "cuda")
    )
    num_batches: int = _flag(200, "batches to measure", _count)
    warmup_batches: int = _flag(WARMUP_BATCHES, "batches before them", _count)
    device: str = _flag("auto", "the device that batches are moved to; auto: cuda if there is one")
    revision: str | None = _flag(None, "branch, tag or commit on the Hub")
    frame_cache_bytes: int | str = _flag("auto", 'memory for decoded frames, such as "2GiB"')
    return_uint8: bool = True
    at_most_s: float = _flag(0.0, "stop after this many seconds; 0: no limit", float)
    floor_s: float = _flag(
        5.0,
        "seconds to measure the decode floor of a local dataset afterwards, in as many processes "
        "as workers; 0 skips it",
        float,
    )

    def __post_init__(self) -> None:
        if not self.source or not set(self.source) <= _LABEL:
            raise SelectionError(
                "want a source label of letters, digits, '-', '_' and '.', because it goes into "
                f"file names, got {self.source!r}"
            )

    def windows(self, camera_keys: Sequence[str]) -> dict[str, list[float]] | None:
        """Return the windows of a sample as `delta_timestamps`; None for single frames."""
        if self.mode == "single":
            return None
        return {key: list(SARM_S) for key in (*camera_keys, "action")}

    def images_per_sample(self, cameras: int) -> int:
        """Return the images of a sample, over all cameras."""
        return cameras * (1 if self.mode == "single" else len(SARM_S))

    def result_name(self, *, workers: int, prefetch: int) -> str:
        """Return the name that LeRobot's script gives a result, without a suffix."""
        return (
            f"{self.source}_{self.mode}_bs{self.batch_size}_w{workers}_pf{prefetch}"
            f"_ep{self.episode_pool_size}_{self.video_decode_device}"
        )

    def figures(self) -> Figures:
        """Return the settings that are written beside the figures, without secrets of addresses."""
        return {
            "repo_id": redact(self.repo_id),
            "root": self.root and redact(self.root),
            "data_files_root": self.data_files_root and redact(self.data_files_root),
            **{name: getattr(self, name) for name in _WRITTEN},
        }


def configure(parser: argparse.ArgumentParser) -> None:
    """Add all flags; each may be written with "_", as LeRobot does, or with "-"."""
    theirs = parser.add_argument_group("as in LeRobot's benchmark_streaming.py")
    ours = parser.add_argument_group("robostream's own")

    def add(name: str, help: str, **options: Any) -> None:
        names = dict.fromkeys([f"--{name}", f"--{name.replace('_', '-')}"])
        if options.get("default") is not None:
            help = f"{help} (%(default)s)"
        (ours if name in _OWN else theirs).add_argument(*names, dest=name, help=help, **options)

    add("repo_id", "the dataset; with --root only a name", required=True)
    for each in fields(StreamSettings):
        if each.metadata:
            add(each.name, default=each.default, **each.metadata)
    add("source", "a label for the location of the data (local for a folder, else hub)")
    add("buffer_size", "ignored: there is no buffer of samples", type=int)
    add("max_num_shards", "ignored: there are no shards", type=int, default=16)
    add("float32", "images as float32 instead of uint8", action="store_true")
    add("out_dir", "folder of results", type=Path, default=OUT_DIR)


def settings_of(args: argparse.Namespace) -> StreamSettings:
    """Return the settings that the flags give."""
    values: dict[str, Any] = {
        each.name: getattr(args, each.name, None) for each in fields(StreamSettings)
    }
    values["return_uint8"] = not args.float32
    if args.source is None:
        place = args.data_files_root or args.root or explicit_root(args.repo_id)
        values["source"] = "hub" if place is None or as_location(place).is_remote else "local"
    return StreamSettings(**values)
