# SPDX-License-Identifier: Apache-2.0
"""The flags of `bench stream`: those of LeRobot's benchmark_streaming.py, and a few more."""

from __future__ import annotations

import argparse
import dataclasses
import string
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from robostream import config
from robostream.bench.results import Figures
from robostream.errors import SelectionError
from robostream.storage import as_location, explicit_root, redact

MODES = ("single", "sarm")
DECODE_DEVICES = ("cpu", "cuda")
WARMUP_BATCHES = 5
OUT_DIR = Path("benchmarks/streaming/results")
_SARM_STEPS = 8
_LABEL = frozenset(string.ascii_letters + string.digits + "_-.")
# The settings that are written beside the figures.
_WRITTEN = ["source", "mode", "batch_size", "episode_pool_size", "video_decode_device"]
_WRITTEN += ["return_uint8", "num_batches", "warmup_batches"]


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """One setting to measure; the defaults are those of LeRobot's script.

    `configure` says what each means. None leaves a setting to the loader.
    """

    repo_id: str
    root: str | None = None
    data_files_root: str | None = None
    revision: str | None = None
    mode: str = "single"
    source: str = "hub"
    batch_size: int = 64
    num_workers: int | None = 8
    prefetch_factor: int | None = 2
    video_decoder_cache_size: int | None = None
    episode_pool_size: int = config.EPISODE_POOL_SIZE
    video_decode_device: str = "cpu"
    frame_cache_bytes: int | str = "auto"
    return_uint8: bool = True
    num_batches: int = 200
    warmup_batches: int = WARMUP_BATCHES
    at_most_s: float = 0.0
    device: str = "auto"
    floor_s: float = 5.0

    def __post_init__(self) -> None:
        for name, value, known in (
            ("mode", self.mode, MODES),
            ("video_decode_device", self.video_decode_device, DECODE_DEVICES),
        ):
            if value not in known:
                raise SelectionError(f"want {name} to be one of {', '.join(known)}, got {value!r}")
        if not self.source or not set(self.source) <= _LABEL:
            raise SelectionError(
                "want a source label of letters, digits, '-', '_' and '.', because it goes into "
                f"file names, got {self.source!r}"
            )

    def windows(self, camera_keys: Sequence[str]) -> dict[str, list[float]] | None:
        """Return the windows of a sample as `delta_timestamps`; None for single frames."""
        if self.mode == "single":
            return None
        steps = [float(step) for step in range(_SARM_STEPS)]
        return dict.fromkeys((*camera_keys, "action"), steps)

    def images_per_sample(self, cameras: int) -> int:
        """Return the images of a sample, over all cameras."""
        return cameras * (1 if self.mode == "single" else _SARM_STEPS)

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
    _add_reference_flags(parser.add_argument_group("as in LeRobot's benchmark_streaming.py"))
    own = parser.add_argument_group("robostream's own")
    _add(own, "revision", help="branch, tag or commit on the Hub")
    _add(own, "frame_cache_bytes", help='memory for decoded frames, such as "2GiB" (%(default)s)')
    _add(own, "float32", action="store_true", help="images as float32 instead of uint8")
    _add(own, "at_most_s", type=float, help="stop after this many seconds (no limit)")
    _add(
        own,
        "floor_s",
        type=float,
        help="seconds to measure the decode floor of a local dataset afterwards, in as many "
        "processes as workers; 0 skips it (%(default)s)",
    )


def _add_reference_flags(group: argparse._ArgumentGroup) -> None:
    _add(group, "repo_id", required=True, help="the dataset; with --root only a name")
    _add(group, "root", help="its folder or URL")
    _add(group, "data_files_root", help="the location of data/ and videos/, if elsewhere")
    mode = "one frame of all cameras, or 8 steps 1 s apart of every camera and the action"
    _add(group, "mode", choices=MODES, help=f"{mode} (%(default)s)")
    source = "a label for the location of the data (local for a folder, else hub)"
    _add(group, "source", default=None, help=source)
    _add(group, "batch_size", type=_count, help="samples per batch (%(default)s)")
    workers = 'worker processes, or "auto" for the loader\'s default (%(default)s)'
    _add(group, "num_workers", type=_count_or_auto, help=workers)
    prefetch = 'batches built ahead, or "auto" (%(default)s)'
    _add(group, "prefetch_factor", type=_count_or_auto, help=prefetch)
    _add(group, "buffer_size", type=int, help="ignored: there is no buffer of samples")
    _add(group, "max_num_shards", type=int, default=16, help="ignored: there are no shards")
    _add(group, "video_decoder_cache_size", type=_count, help="video files kept open")
    _add(group, "episode_pool_size", type=_count, help="episodes mixed at a time (%(default)s)")
    device = "the device that decodes videos (%(default)s)"
    _add(group, "video_decode_device", choices=DECODE_DEVICES, help=device)
    _add(group, "num_batches", type=_count, help="batches to measure (%(default)s)")
    _add(group, "warmup_batches", type=_count, help="batches before them (%(default)s)")
    _add(group, "device", help="the device that batches are moved to (cuda if there is one)")
    _add(group, "out_dir", type=Path, default=OUT_DIR, help="folder of results (%(default)s)")


def settings_of(args: argparse.Namespace) -> StreamSettings:
    """Return the settings that the flags give."""
    values = {name: value for name, value in vars(args).items() if name in _DEFAULTS}
    values["return_uint8"] = not args.float32
    if args.source is None:
        place = args.data_files_root or args.root or explicit_root(args.repo_id)
        values["source"] = "hub" if place is None or as_location(place).is_remote else "local"
    return StreamSettings(**values)


_DEFAULTS = {each.name: each.default for each in dataclasses.fields(StreamSettings)}


def _add(group: argparse._ArgumentGroup, name: str, **options: object) -> None:
    names = [f"--{name}", *([f"--{name.replace('_', '-')}"] if "_" in name else [])]
    if name in _DEFAULTS and not options.get("required"):
        options.setdefault("default", _DEFAULTS[name])
    group.add_argument(*names, dest=name, **options)  # type: ignore[arg-type]


def _count(text: str) -> int:
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"want 0 or more, got {text}")
    return number


def _count_or_auto(text: str) -> int | None:
    return None if text == "auto" else _count(text)
