# SPDX-License-Identifier: Apache-2.0
"""Frames, decoded and checked: damage, black and frozen cameras, image statistics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, NamedTuple

import av
import numpy as np

from robostream.assemble import decode_image
from robostream.decode import CodecConfig, PyavBackend, new_context, one_thread, plan_runs
from robostream.errors import DatasetError, StorageError, VideoFileError
from robostream.meta import LeRobotDatasetMetadata, image_shape, is_depth
from robostream.tools.doctor.files import DatasetFiles, Floats
from robostream.tools.doctor.findings import Item, Remarks, check, error, note, warning
from robostream.tools.doctor.tables import is_policy_feature, recorded_numbers

# Frames are summarised by so many pixels of each side.
_SIDE = 16
# A frame is black if no pixel of its summary is brighter; on a scale of 0 to 1, as all values here.
_BLACK = 0.03
_BLACK_SHARE = 0.1
# Frames look the same if the brightness of no pixel of their summaries differs by more, which a
# codec's noise may do.
_SAME = 3 / 255
# A camera is frozen if its frames look the same for so long while the robot moves.
_STILL_S = 2.0
_MOTION_STD = 0.5
# The recorded mean of images may be so far from the frames'.
_FAR = 0.1
_LEAVE_OUT = "Leave the episodes out; check the camera and its cable."


class SmallFrame(NamedTuple):
    """The (width, height) of a frame, and small pixels of shape (rows, columns, channels)."""

    size: tuple[int, int]
    pixels: Floats


@dataclass(frozen=True, slots=True)
class DecodedClip(Item):
    """One camera's frames of an episode, up to the one that does not decode."""

    level: ClassVar[str] = "frames"
    meta: LeRobotDatasetMetadata
    camera: str
    episodes: tuple[int, ...]
    problem: str  # why not all frames were decoded
    num_frames: int
    num_black: int  # frames that are black
    longest_still: int  # the most frames in a row that look the same
    motion: float  # how far the robot moved meanwhile, in standard deviations
    mean: Floats | None  # the mean of each channel; None for depth
    sizes: frozenset[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class AllClips(Item):
    """All decoded clips."""

    level: ClassVar[str] = "frames"
    meta: LeRobotDatasetMetadata
    clips: Sequence[DecodedClip]


def read_clip(files: DatasetFiles, camera: str, episode: int) -> DecodedClip:
    """Return the summary of one camera's frames of an episode. Thread-safe."""
    meta, found, problem = files.meta, list[SmallFrame](), ""
    decode = _decode_video if camera in meta.video_keys else _decode_images
    try:
        found.extend(decode(files, camera, episode))
    except (DatasetError, StorageError) as failure:
        problem = str(failure)
    first, stop = _find_longest_still([frame.pixels for frame in found])
    means = [frame.pixels.mean((0, 1)) for frame in found]
    return DecodedClip(
        meta,
        camera,
        (episode,),
        problem,
        num_frames=len(found),
        num_black=sum(bool(frame.pixels.max() <= _BLACK) for frame in found),
        longest_still=stop - first,
        motion=_measure_motion(files, episode, first, stop) if stop - first > 4 else 0.0,
        mean=np.mean(means, axis=0) if means and not is_depth(meta.features[camera]) else None,
        sizes=frozenset(frame.size for frame in found),
    )


def _find_longest_still(frames: Sequence[Floats]) -> tuple[int, int]:
    """Return the longest run [first, stop) of frames that look like its first one. Pure."""
    grey = [frame.mean(axis=2) for frame in frames]
    best, first = (0, 0), 0
    for number in range(1, len(grey) + 1):
        if number == len(grey) or np.abs(grey[number] - grey[first]).max() > _SAME:
            best = max(best, (first, number), key=lambda run: run[1] - run[0])
            first = number
    return best


def _measure_motion(files: DatasetFiles, episode: int, first: int, stop: int) -> float:
    """Return the largest change of state or action in frames [first, stop), in deviations."""
    stats = {key: recorded_numbers(files.meta, key) for key in files.meta.features}
    stds = {k: e["std"] + 1e-9 for k, e in stats.items() if is_policy_feature(k) and "std" in e}
    try:
        numbers = files.read_rows([*stds], episode).numbers
    except (DatasetError, StorageError):
        return 0.0  # another check's
    changes = (np.ptp(numbers[key][first:stop], 0) / std for key, std in stds.items())
    return max((float(np.max(change)) for change in changes), default=0.0)


def _decode_video(files: DatasetFiles, camera: str, episode: int) -> Iterator[SmallFrame]:
    """Yield the frames of an episode; raise VideoFileError if one does not decode."""
    file, numbers = files.dataset.find_frames(files.videos, episode, camera)
    kind = "gray16le" if camera in files.meta.depth_keys else "rgb24"
    backend = PyavBackend(_open_strictly, partial(_shrink, kind))
    packets = file.index.packets_of(numbers)
    for run in plan_runs(file.index, numbers):
        decoded = {number: frame for _, number, frame in backend.decode([(file, run)])}
        of_run = numbers[(run.first_packet <= packets) & (packets < run.stop_packet)]
        for number in of_run.tolist():
            if number not in decoded:
                name = file.source.name
                raise VideoFileError(f"{name}: the decoder did not return frame {number}.")
            yield decoded[number]


def _open_strictly(config: CodecConfig) -> av.VideoCodecContext:
    """Return a decoder that raises errors which it would otherwise conceal in the frame."""
    context = new_context(config, config.decoder, None)
    context.options = {"err_detect": "explode"}
    return context


def _shrink(kind: str, frame: av.VideoFrame, _name: str) -> SmallFrame:
    small = frame.reformat(_SIDE, _SIDE, kind, interpolation="AREA", **one_thread()).to_ndarray()
    scale = 65535 if kind == "gray16le" else 255
    return SmallFrame((frame.width, frame.height), small.reshape(_SIDE, _SIDE, -1) / scale)


def _decode_images(files: DatasetFiles, camera: str, episode: int) -> Iterator[SmallFrame]:
    channels, _, _ = image_shape(files.meta.features[camera])
    rows = files.read_rows([camera], episode)
    for frame in range(rows.length):
        where = f"{files.dataset.files.url}: {camera}, episode {episode}, frame {frame}"
        image = decode_image(rows.object_at(camera, frame) or b"", where=where, channels=channels)
        _, height, width = image.shape
        places = (np.linspace(0, side - 1, _SIDE).astype(int) for side in (height, width))
        small = image.transpose(1, 2, 0)[np.ix_(*places)]
        scale = np.iinfo(image.dtype).max if image.dtype.kind in "ui" else 1
        yield SmallFrame((width, height), small / scale)


@check(
    why="the episode cannot be loaded, or shows frames that were never recorded",
    cure="Copy the file again; else --fix keeps the episodes before it, and "
    "on_bad_episode='quarantine' trains without it.",
)
def decoding(clip: DecodedClip) -> Remarks:
    """Every frame decodes."""
    if clip.problem:
        yield error(f"{clip.camera}: {clip.problem}")


@check(why="the policy learns to act blindly", cure=_LEAVE_OUT)
def black(clip: DecodedClip) -> Remarks:
    """No camera is black."""
    if clip.num_black > _BLACK_SHARE * clip.num_frames:
        yield warning(f"{clip.camera}: more than a tenth of the frames are black.")
    elif clip.num_black:
        yield note(f"{clip.camera}: some frames are black.", clip.episodes)


@check(why="actions do not belong to what is seen", cure=_LEAVE_OUT)
def frozen(clip: DecodedClip) -> Remarks:
    """No camera is frozen."""
    still_frames = min(_STILL_S * clip.meta.fps, clip.num_frames)
    if clip.longest_still >= still_frames and clip.motion > _MOTION_STD:
        yield warning(f"{clip.camera}: the image stands still while the robot moves.")


@check(why="sizes do not fit one batch", cure="Correct info.json, or resize=.")
def image_sizes(clip: DecodedClip) -> Remarks:
    """Images have the size that info.json declares."""
    _, height, width = image_shape(clip.meta.info.features[clip.camera])
    if other := sorted(clip.sizes - {(width, height)}):
        found = ", ".join(f"{size[0]}x{size[1]}" for size in other)
        yield warning(f"{clip.camera}: info.json declares {width}x{height}, found {found}.")


@check(
    why="images are normalised with the statistics of other images",
    cure="Compute them again: robostream stats DATASET --images --write DEST",
)
def image_stats(content: AllClips) -> Remarks:
    """Image statistics are those of the frames."""
    for camera in content.meta.camera_keys:
        recorded = recorded_numbers(content.meta, camera).get("mean", np.zeros(0)).ravel()
        clips = [c for c in content.clips if c.camera == camera and c.mean is not None]
        means = [clip.mean for clip in clips if clip.mean is not None]
        if means and recorded.shape == means[0].shape:
            found = np.average(means, axis=0, weights=[clip.num_frames for clip in clips])
            if np.abs(recorded - found).max() > _FAR:
                new, old = (np.round(values, 3).tolist() for values in (found, recorded))
                yield warning(f"{camera}: the mean of the frames is {new}, recorded {old}.")
