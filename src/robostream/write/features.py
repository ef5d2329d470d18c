# SPDX-License-Identifier: Apache-2.0
"""The features of a new dataset, checked, and a camera's `info` block in info.json."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import av

from robostream.errors import MetadataError
from robostream.meta import (
    CAMERA_DTYPES,
    DEFAULT_FEATURES,
    LANGUAGE_KEYS,
    DatasetInfo,
    Features,
    image_shape,
    is_depth,
    validate_features,
)
from robostream.write.encoder_options import DepthEncoderConfig, VideoEncoderConfig, check_encoder


def features_to_record(features: Mapping[str, Any], *, use_videos: bool) -> Features:
    """Return the features of a new dataset, the default ones last, or raise MetadataError."""
    checked = validate_features(features, "create") | copy.deepcopy(DEFAULT_FEATURES)
    faults = [
        f"{name}: {fault}" for name, entry in checked.items() if (fault := _fault(name, entry))
    ]
    videos = [name for name, entry in checked.items() if entry["dtype"] == "video"]
    if videos and not use_videos:
        faults.append(f"{', '.join(videos)}: videos, though use_videos is False; want dtype image")
    if faults:
        listed = "".join(f"\n  - {fault}" for fault in faults)
        raise MetadataError(f"these features cannot be recorded:{listed}")
    return {name: _mark_depth(entry) for name, entry in checked.items()}


def check_cameras(
    info: DatasetInfo, encoder: VideoEncoderConfig, depth_encoder: DepthEncoderConfig
) -> None:
    """Raise ValueError, naming the camera, if its encoder cannot encode its images."""
    checked = set()
    for key in info.video_keys:
        _, height, width = image_shape(info.features[key])
        options = depth_encoder.video if is_depth(info.features[key]) else encoder
        if (options is encoder, height, width) in checked:
            continue
        try:
            check_encoder(options, width=width, height=height)
        except ValueError as error:
            raise ValueError(f"{key}: {error}") from error
        checked.add((options is encoder, height, width))


def video_info(
    path: Path, *, fps: float, encoder: VideoEncoderConfig | DepthEncoderConfig
) -> dict[str, Any]:
    """Return the `info` block of a camera whose first video is at `path`."""
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        pix_fmt = stream.codec_context.pix_fmt or ""
        return {
            "video.height": stream.height,
            "video.width": stream.width,
            "video.codec": stream.codec_context.codec.canonical_name,
            "video.pix_fmt": pix_fmt,
            "video.fps": int(fps),  # FFmpeg's estimate is wrong for one or two frames
            "video.channels": len(av.VideoFormat(pix_fmt).components),
            "has_audio": False,
            **encoder.to_info(),
            "is_depth_map": isinstance(encoder, DepthEncoderConfig),
        }


def _fault(name: str, entry: Mapping[str, Any]) -> str | None:
    dtype, shape = entry["dtype"], entry["shape"]
    if dtype in CAMERA_DTYPES:
        channels, _, _ = image_shape(entry)
        if channels == 1 or (channels == 3 and not is_depth(entry)):
            return None
        return f"a camera has 3 channels, a depth camera 1; found {channels} in {shape}"
    if dtype == "language" and name not in LANGUAGE_KEYS:
        return f"language columns are called {' and '.join(LANGUAGE_KEYS)}"
    if dtype in ("string", "language"):
        return None if shape == (1,) else f"{dtype} wants shape (1,), found {shape}"
    return None if shape else "want at least one axis; a single number has shape (1,)"


def _mark_depth(entry: dict[str, Any]) -> dict[str, Any]:
    # A camera with one channel records depth, which readers detect only by this mark.
    if entry["dtype"] in CAMERA_DTYPES and image_shape(entry)[0] == 1 and not is_depth(entry):
        return {**entry, "info": {**(entry.get("info") or {}), "is_depth_map": True}}
    return entry
