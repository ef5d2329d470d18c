# SPDX-License-Identifier: Apache-2.0
"""Checks a camera stored as MP4: its file, its stream, the episode's frames, and decoding them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import av
import numpy as np
import numpy.typing as npt

from robostream.assemble import OpenedDataset, RowReader, find_video_shape, match_frames
from robostream.config import TOLERANCE_S
from robostream.decode import FrameEngine, FrameIndex, VideoSource, has_codec
from robostream.errors import FrameTimestampError, StorageError, VideoFileError
from robostream.meta import LeRobotDatasetMetadata, is_depth
from robostream.storage import ByteSource, FileOpener, SourceFile
from robostream.tools.diagnose.camera import (
    CameraCheck,
    DecodeRate,
    FrameStats,
    note_size,
    summarise_frame,
)
from robostream.tools.diagnose.file import FileCheck, Problem, check_file, explain_unreadable
from robostream.tools.diagnose.machine import Gpu, advise_device
from robostream.tools.diagnose.stream import (
    EpisodeSpan,
    codec_tag,
    decode_one,
    describe_stream,
    open_context,
    try_gpu,
)

Int64s = npt.NDArray[np.int64]

# Codecs that every FFmpeg knows; for other tags, the file is opened with FFmpeg to find out.
_USUAL_TAGS = frozenset(("avc1", "avc3", "hvc1", "hev1", "av01", "vp09"))
_LONG_GOP_FRAMES = 30


@dataclass(frozen=True, slots=True)
class VideoInputs:
    """What `check_video` works on; `reader` is None if the rows cannot be read."""

    dataset: OpenedDataset
    key: str
    episode: int
    engine: FrameEngine
    reader: RowReader | None
    gpu: Gpu

    @property
    def meta(self) -> LeRobotDatasetMetadata:
        """The dataset's metadata."""
        return self.dataset.meta

    @property
    def file(self) -> str:
        """The video file, relative to the dataset's root."""
        return self.meta.get_video_file_path(self.episode, self.key).as_posix()

    def open_source(self) -> ByteSource:
        """Return the bytes of the video file."""
        return VideoSource(FileOpener(self.dataset.files).open(self.file))


def check_video(inputs: VideoInputs) -> CameraCheck:
    """Return the findings about a camera stored as MP4, up to the first fatal problem."""
    file = check_file(inputs.dataset.files, inputs.file, want="mp4")
    check = CameraCheck(inputs.key, "video", file)
    if file.problem is not None:
        return replace(check, problems=(file.problem,))
    try:
        return _examine(inputs, check)
    except (StorageError, VideoFileError) as error:
        return replace(check, problems=(explain_unreadable(error),))


def _examine(inputs: VideoInputs, check: CameraCheck) -> CameraCheck:
    problem = _missing_decoder(inputs, check.file)
    if problem is None:
        try:
            index = inputs.engine.index(inputs.file)
            problem = explain_missing_decoder(index)
        except VideoFileError as error:
            problem = _damaged(error)
    if problem is not None:
        return replace(check, problems=(problem,))
    numbers, span, mismatch = _span(inputs, index)
    check = replace(
        check,
        stream=describe_stream(index, _pix_fmt(inputs, index, int(numbers[0]))),
        span=span,
        problems=(mismatch,) if mismatch else (),
        gpu=try_gpu(inputs.gpu, inputs.open_source(), index, int(numbers[0])),
    )
    decoded = _decode(inputs, index, numbers)
    if isinstance(decoded, Problem):
        check = replace(check, problems=(*check.problems, decoded))
    else:
        check = replace(check, picture=decoded[0], rate=decoded[1])
    return replace(check, notes=tuple(_notes(inputs, check, numbers)))


def _missing_decoder(inputs: VideoInputs, file: FileCheck) -> Problem | None:
    """Return the problem of a codec that this FFmpeg does not know at all."""
    try:
        tag = codec_tag(file, inputs.open_source())
        if tag is None or tag in _USUAL_TAGS:
            return None
        with av.open(SourceFile(inputs.open_source()), "r") as container:
            known = all(s.codec_context is not None for s in container.streams.video)
    except av.FFmpegError:
        return None  # the file is damaged; indexing it gives a better message
    return None if known else _no_decoder(file.path, f"the codec with the tag {tag!r}")


def _no_decoder(path: str, codec: str) -> Problem:
    what = (
        f"{path}: FFmpeg {av.ffmpeg_version_info}, which PyAV {av.__version__} contains, has no "
        f"decoder for {codec}."
    )
    cure = (
        "Install PyAV from PyPI, which has decoders for AV1, H.264, HEVC and VP9 (pip install "
        "--force-reinstall --only-binary av av), or re-encode the video with one of them."
    )
    return Problem("no_decoder", what, cure)


def explain_missing_decoder(index: FrameIndex) -> Problem | None:
    """Return the problem of a codec that this FFmpeg knows but has no decoder for."""
    lacking = [c.decoder for c in index.configs if not has_codec(c.decoder, "r")]
    return _no_decoder(index.file, f"{lacking[0]} video") if lacking else None


def _damaged(error: VideoFileError) -> Problem:
    cure = (
        "If a fresh copy has the same problem, the recording is damaged: train without the episode "
        "(on_bad_episode='quarantine')."
    )
    return Problem("damaged", str(error), cure)


def _pix_fmt(inputs: VideoInputs, index: FrameIndex, frame: int) -> str | None:
    try:
        context = open_context(index.config_of(frame), on_gpu=False)
        found = decode_one(context, inputs.open_source(), index, frame)
    except av.FFmpegError:
        return None  # decoding the episode gives the reason
    return found.format.name if found else None


def _span(inputs: VideoInputs, index: FrameIndex) -> tuple[Int64s, EpisodeSpan, Problem | None]:
    """Return the numbers of the episode's frames in the file, and how well their times match.

    For times without a matching frame, the number is that of the nearest frame.
    """
    table, key = inputs.meta.episodes, inputs.key
    start_s = float(table[f"videos/{key}/from_timestamp"][inputs.episode])
    length = int(table["length"][inputs.episode])
    wanted = start_s + np.arange(length) / inputs.meta.fps
    numbers = index.match(wanted, tolerance_s=math.inf, where=key)
    problem = None
    try:
        numbers = _matched(inputs, index, wanted)
    except FrameTimestampError as error:
        cure = (
            "Copy the video and meta/ from one revision of the dataset; if the video is right and "
            "only its clock is coarse, raise tolerance_s."
        )
        problem = Problem("times", str(error), cure)
    errors = np.abs(index.times_s()[numbers] - wanted)
    first = int(numbers[0])
    span = EpisodeSpan(
        first_frame=first,
        last_frame=int(numbers[-1]),
        start_s=start_s,
        stop_s=float(table[f"videos/{key}/to_timestamp"][inputs.episode]),
        largest_error_s=float(errors.max()),
        tolerance_s=TOLERANCE_S,
        matches=problem is None,
        starts_at_key=first in index.start_frames,
    )
    return numbers, span, problem


def _matched(inputs: VideoInputs, index: FrameIndex, wanted: npt.NDArray[np.float64]) -> Int64s:
    if inputs.reader is None:
        where = f"{inputs.key}, episode {inputs.episode}"
        return index.match(wanted, tolerance_s=TOLERANCE_S, where=where)
    inputs.reader.read(inputs.episode)
    return match_frames(inputs.meta, index, inputs.episode, inputs.key, tolerance_s=TOLERANCE_S)


def _decode(
    inputs: VideoInputs, index: FrameIndex, numbers: Int64s
) -> tuple[FrameStats, DecodeRate] | Problem:
    entry = inputs.meta.features[inputs.key]
    dtype, depth_name = (np.uint16, "depth code") if is_depth(entry) else (np.uint8, None)
    try:
        shape = find_video_shape(inputs.engine.files.get(inputs.file), int(numbers[0]), entry)
        slot = np.zeros(shape, dtype)
        inputs.engine.read(inputs.file, numbers[:1], slot[None])
        stats = summarise_frame(slot, depth_name=depth_name)
        return stats, _rate(inputs, index, numbers, slot)
    except VideoFileError as error:
        return _damaged(error)


def _rate(
    inputs: VideoInputs, index: FrameIndex, numbers: Int64s, slot: npt.NDArray[np.uint8]
) -> DecodeRate:
    # All rows of `out` share the memory of one frame, so a long episode needs no more.
    out = np.lib.stride_tricks.as_strided(slot, (len(numbers), *slot.shape), (0, *slot.strides))
    before = inputs.engine.statistics.summary()
    inputs.engine.read(inputs.file, numbers, out)
    after = inputs.engine.statistics.summary()
    spent = {name: after[name] - before[name] for name in ("fetch_s", "decode_s", "convert_s")}
    return DecodeRate(
        images=len(numbers),
        images_per_s=len(numbers) / max(spent["decode_s"] + spent["convert_s"], 1e-9),
        read_s=spent["fetch_s"],
        read_bytes=int(index.sizes[index.packets_of(numbers)].sum(dtype=np.int64)),
    )


def _notes(inputs: VideoInputs, check: CameraCheck, numbers: Int64s) -> list[str]:
    assert check.stream is not None
    assert check.span is not None
    entry = inputs.meta.features[inputs.key]
    notes = [] if check.picture is None else [*note_size(check.picture, entry)]
    gops = check.stream.gops
    listed = _listed_frames(inputs)
    if check.stream.num_frames != listed:
        notes.append(
            f"The file has {check.stream.num_frames} frames, but the episodes that meta/ puts into "
            f"it have {listed} together: it is from another revision of the dataset, or episodes "
            "were deleted."
        )
    if check.picture is not None and check.picture.is_black:
        notes.append("The episode's first frame is black: was the camera covered or not ready?")
    if gops.max_frames > _LONG_GOP_FRAMES:
        notes.append(
            f"Key frames are up to {gops.max_frames} frames apart, so one frame read at random "
            "costs up to as many decoded ones. Give the frame cache room for the pool, or encode "
            "with a key frame every 2 frames."
        )
    if not check.span.starts_at_key:
        notes.append(
            "The episode does not start with a key frame, so decoding it starts at a frame of the "
            "episode before it."
        )
    if check.gpu is not None and check.gpu.works and check.rate is not None:
        from robostream.loader import share_of_cores  # imports torch, which other tools do not need

        size = check.stream.width, check.stream.height
        speed, cores = check.rate.images_per_s, share_of_cores(1)
        notes.append(advise_device(speed, cores, *size, gops.median_frames))
    if np.any(np.diff(numbers) != 1):
        notes.append("Frames of the file are left out or repeated within the episode.")
    return notes


def _listed_frames(inputs: VideoInputs) -> int:
    """Return how many frames the episode table puts into the video file."""
    table, prefix = inputs.meta.episodes, f"videos/{inputs.key}"
    chunks, files = table[f"{prefix}/chunk_index"], table[f"{prefix}/file_index"]
    is_here = (chunks == chunks[inputs.episode]) & (files == files[inputs.episode])
    return int(table["length"][is_here].sum())
