# SPDX-License-Identifier: Apache-2.0
"""What a sample holds: its columns, cameras, frame sizes, units and windows."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from robostream import arguments, config
from robostream.assemble.selection import EpisodeFilter, EpisodeWeights, FrameRanges
from robostream.decode import Size
from robostream.errors import SelectionError
from robostream.meta import Features, LeRobotDatasetMetadata

ImageTransforms = Callable[[Any], Any]
"""Takes the images of a camera as a tensor (..., C, H, W) and returns a tensor."""
Resize = Sequence[int] | npt.NDArray[np.integer[Any]] | Mapping[str, Sequence[int]]
"""The (height, width) of all cameras, or a pair for each camera key."""
Offsets = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SampleOptions:
    """What to read and in which form: the arguments of `LeRobotDataset` by these names.

    `camera_keys` of None selects all cameras, an empty list none.
    """

    episodes: Sequence[int] | None = None
    episode_filter: EpisodeFilter | None = None
    camera_keys: Sequence[str] | None = None
    delta_timestamps: Mapping[str, Sequence[float]] | None = None
    tolerance_s: float = config.TOLERANCE_S
    return_uint8: bool = False
    depth_output_unit: str = "mm"
    image_transforms: ImageTransforms | None = None
    resize: Resize | None = None
    frames: FrameRanges | None = None
    stride: int = 1
    episode_weights: EpisodeWeights | None = None
    clip_windows: bool = False


@dataclass(frozen=True, slots=True)
class SampleSpec:
    """What a sample holds; map-style reading and streaming share it, so their values agree."""

    columns: tuple[str, ...]
    videos: tuple[str, ...]
    images: tuple[str, ...]
    windows: Mapping[str, Offsets]
    tolerance_s: float
    return_uint8: bool
    depth_output_unit: str
    image_transforms: ImageTransforms | None
    resize: Mapping[str, Size]
    clips_windows: bool = False

    @property
    def cameras(self) -> tuple[str, ...]:
        """All cameras of a sample: videos, then images."""
        return self.videos + self.images


def make_spec(meta: LeRobotDatasetMetadata, options: SampleOptions) -> SampleSpec:
    """Return the checked spec of a dataset's samples, or raise SelectionError."""
    check_transforms(options.image_transforms)
    unit = options.depth_output_unit
    if unit not in ("m", "mm"):
        raise SelectionError(f"depth_output_unit must be 'm' or 'mm', got {unit!r}")
    tolerance_s = arguments.number(options.tolerance_s, "tolerance_s")
    wanted = meta.camera_keys
    if options.camera_keys is not None:
        wanted = arguments.names(options.camera_keys, "camera_keys")
        _check_known("camera_keys", wanted, meta.camera_keys, f"the cameras of {meta.repo_id}")
    excluded = set(meta.camera_keys) - set(wanted)
    windows = window_offsets(
        options.delta_timestamps, meta.features, fps=meta.fps, tolerance_s=tolerance_s
    )
    _check_windows(meta, windows, excluded)
    columns = tuple(
        key for key, f in meta.features.items() if f["dtype"] != "video" and key not in excluded
    )
    return SampleSpec(
        columns=columns,
        videos=tuple(key for key in meta.video_keys if key in wanted),
        images=tuple(key for key in meta.image_keys if key in wanted),
        windows=windows,
        tolerance_s=tolerance_s,
        return_uint8=arguments.truth(options.return_uint8, "return_uint8"),
        depth_output_unit=unit,
        image_transforms=options.image_transforms,
        resize=_sizes(options.resize, wanted),
        clips_windows=arguments.truth(options.clip_windows, "clip_windows"),
    )


def check_transforms(image_transforms: ImageTransforms | None) -> None:
    """Raise TypeError unless `image_transforms` is callable or None."""
    if image_transforms is not None and not callable(image_transforms):
        raise TypeError(
            f"image_transforms must be callable or None, got {type(image_transforms).__name__}"
        )


def window_offsets(
    delta_timestamps: Mapping[str, Sequence[float]] | None,
    features: Features,
    *,
    fps: float,
    tolerance_s: float,
) -> dict[str, Offsets]:
    """Return the frame offsets of each key, or raise SelectionError naming every bad delta."""
    by_name = "lists of seconds by name of a feature (a dict)"
    arguments.of_kind(delta_timestamps, "delta_timestamps", Mapping | None, by_name)
    texts = {key: entry["dtype"] in ("string", "language") for key, entry in features.items()}
    missing = "the dataset does not have. Its features are"
    deltas = parse_windows("delta_timestamps", delta_timestamps, texts, missing)
    found = {key: nearest_offsets(deltas[key], fps, tolerance_s) for key in deltas}
    faults = [f"{k}: {deltas[k][i]!r} s" for k in found for i in np.flatnonzero(found[k][1])]
    if faults:
        raise SelectionError(
            f"these deltas are no multiples of 1/fps = {1 / fps:.6g} s within tolerance_s = "
            f"{tolerance_s}: {'; '.join(faults)}. Round them to whole frames."
        )
    return {key: offsets for key, (offsets, _) in found.items()}


def parse_windows(
    argument: str, given: Mapping[str, Any] | None, texts: Mapping[str, bool], missing: str
) -> dict[str, list[Any]]:
    """Return the steps of each window as numbers, or raise SelectionError.

    `argument` is "delta_timestamps" or "delta_indices". `texts` has every known key, and whether it
    is that of a text; `missing` is what the error says of another key.
    """
    parse = arguments.numbers if argument == "delta_timestamps" else arguments.whole_numbers
    windows: dict[str, list[Any]] = {}
    for key, steps in (given or {}).items():
        if key not in texts:
            raise SelectionError(f"{argument} asks for {key!r}, which {missing} {', '.join(texts)}")
        if texts[key]:
            raise SelectionError(f"{argument} asks for {key!r}, but texts have no windows")
        windows[key] = [*parse(steps, f"{argument}[{key!r}]")]
        if not windows[key]:
            raise SelectionError(f"{argument}[{key!r}] is empty; leave the key out instead")
    return windows


def nearest_offsets(
    deltas: npt.ArrayLike, fps: float, tolerance_s: float
) -> tuple[Offsets, npt.NDArray[np.bool_]]:
    """Return the frame offset nearest to each delta, and which are off by more. Pure."""
    exact = np.asarray(deltas, np.float64) * fps
    offsets = np.rint(exact)
    with np.errstate(invalid="ignore"):
        off = ~(np.abs(exact - offsets) / fps <= tolerance_s)  # NaN is off, too
    return np.where(np.isfinite(offsets), offsets, 0).astype(np.int64), off


def window_targets(
    offsets: Offsets, frame: int, first: int, stop: int
) -> tuple[Offsets, npt.NDArray[np.bool_]]:
    """Return the frames of a window, clamped to [first, stop), and which of them are padding. Pure.

    As in LeRobot, these limits are the ends of the episode, if the user does not ask for others.
    """
    targets = offsets + frame
    is_pad = (targets < first) | (targets >= stop)
    # np.clip takes several times as long for so few numbers.
    return np.minimum(np.maximum(targets, first), stop - 1), is_pad


def _check_windows(
    meta: LeRobotDatasetMetadata, windows: Mapping[str, Offsets], excluded: set[str]
) -> None:
    """Raise for windows of excluded cameras, and for masks that would take a feature's name."""
    unused = [key for key in windows if key in excluded]
    if unused:
        raise SelectionError(
            f"delta_timestamps asks for {', '.join(unused)}, which camera_keys leaves out"
        )
    taken = [f"{key}_is_pad" for key in windows if f"{key}_is_pad" in meta.features]
    if taken:
        raise SelectionError(
            f"{meta.repo_id} has a feature named {', '.join(taken)}, which is also the name of the "
            "mask of a window in delta_timestamps. Leave the window out, or rename the feature in "
            "info.json and in the files of data/."
        )


def _check_known(
    argument: str, names: Sequence[object], known: Sequence[str], described: str
) -> None:
    unknown = [str(name) for name in names if name not in known]
    if unknown:
        raise SelectionError(
            f"{argument} names {', '.join(unknown)}, but {described} are "
            f"{', '.join(known) or 'none'}"
        )


def _sizes(resize: Resize | None, cameras: Sequence[str]) -> dict[str, Size]:
    """Return the (height, width) of each camera that is resized."""
    if resize is None:
        return {}
    if not isinstance(resize, Mapping):
        return dict.fromkeys(cameras, parse_size(resize, "resize"))
    _check_known("resize", list(resize), cameras, "the cameras of a sample")
    return {key: parse_size(size, f"resize of {key}") for key, size in resize.items()}


def parse_size(size: object, name: str) -> Size:
    """Return a (height, width) as two ints, or raise SelectionError."""
    sides: list[int] = []
    if isinstance(size, Sequence | np.ndarray):
        with contextlib.suppress(SelectionError):  # the error below says what a size is
            sides = arguments.whole_numbers(size, name)
    if len(sides) == 2 and all(1 <= side <= config.MAX_IMAGE_PX for side in sides):
        return sides[0], sides[1]
    raise SelectionError(
        f"{name} must be (height, width), two whole numbers from 1 to {config.MAX_IMAGE_PX}, or "
        f"such a pair for each camera by name; got {size!r}"
    )
