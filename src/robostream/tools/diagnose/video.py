# SPDX-License-Identifier: Apache-2.0
"""A camera stored as MP4: its file, its stream, where the episode lies in it, and decoding it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import av
import numpy as np
import numpy.typing as npt

from robostream.assemble import OpenedDataset, RowReader, picture_numbers, video_shape
from robostream.config import TOLERANCE_S
from robostream.decode import FrameEngine, FrameIndex, VideoSource, has_codec
from robostream.errors import FrameTimestampError, StorageError, VideoFileError
from robostream.meta import LeRobotDatasetMetadata, is_depth
from robostream.storage import ByteSource, SourceFile, open_source
from robostream.tools.diagnose.advice import where_to_decode
from robostream.tools.diagnose.file import FileCheck, Problem, check_file, unreadable
from robostream.tools.diagnose.gpu import Gpu
from robostream.tools.diagnose.probe import decode_one, open_context, try_gpu
from robostream.tools.diagnose.records import (
    CameraCheck,
    Picture,
    Rate,
    Span,
    note_size,
    summarise_picture,
)
from robostream.tools.diagnose.stream import codec_tag, describe_stream

Int64s = npt.NDArray[np.int64]

# The tags of the usual codecs; FFmpeg is asked about others.
_USUAL_TAGS = frozenset(("avc1", "avc3", "hvc1", "hev1", "av01", "vp09"))
_LONG_GOP_FRAMES = 30


@dataclass(frozen=True, slots=True)
class VideoCase:
    """One camera of one episode, and what it is examined with.

    Attributes:
        dataset: The dataset.
        key: The camera.
        episode: The episode.
        engine: What reads frames of the dataset's video files.
        reader: What reads the episode's rows; None if they cannot be read.
        gpu: What the machine has for decoding on a GPU.
    """

    dataset: OpenedDataset
    key: str
    episode: int
    engine: FrameEngine
    reader: RowReader | None
    gpu: Gpu

    @property
    def meta(self) -> LeRobotDatasetMetadata:
        """What the dataset holds."""
        return self.dataset.meta

    @property
    def file(self) -> str:
        """The video file, relative to the dataset's root."""
        return self.meta.get_video_file_path(self.episode, self.key).as_posix()

    def open_source(self) -> ByteSource:
        """Return the bytes of the video file."""
        return VideoSource(open_source(self.dataset.files, self.file))


def check_video(case: VideoCase) -> CameraCheck:
    """Return all that can be found out about a camera stored as MP4, up to the first problem."""
    file = check_file(case.dataset.files, case.file, want="mp4")
    check = CameraCheck(case.key, "video", file)
    if file.problem is not None:
        return replace(check, problems=(file.problem,))
    try:
        return _examine(case, check)
    except (StorageError, VideoFileError) as error:
        return replace(check, problems=(unreadable(error),))


def _examine(case: VideoCase, check: CameraCheck) -> CameraCheck:
    index = _missing_decoder(case, check.file) or _index(case)
    if isinstance(index, Problem):
        return replace(check, problems=(index,))
    numbers, span, mismatch = _span(case, index)
    check = replace(
        check,
        stream=describe_stream(index, _pix_fmt(case, index, int(numbers[0]))),
        span=span,
        problems=(mismatch,) if mismatch else (),
        gpu=try_gpu(case.gpu, case.open_source(), index, int(numbers[0])),
    )
    decoded = _decode(case, index, numbers)
    if isinstance(decoded, Problem):
        check = replace(check, problems=(*check.problems, decoded))
    else:
        check = replace(check, picture=decoded[0], rate=decoded[1])
    return replace(check, notes=tuple(_notes(case, check, numbers)))


def _missing_decoder(case: VideoCase, file: FileCheck) -> Problem | None:
    """Return the problem of a codec that this FFmpeg does not know at all."""
    try:
        tag = codec_tag(file, case.open_source())
        if tag is None or tag in _USUAL_TAGS:
            return None
        with av.open(SourceFile(case.open_source()), "r") as container:
            known = all(s.codec_context is not None for s in container.streams.video)
    except av.FFmpegError:
        return None  # the file is damaged; building the index gives a better message
    return None if known else _no_decoder(file.path, f"the codec with the tag {tag!r}")


def _no_decoder(path: str, codec: str) -> Problem:
    what = (
        f"{path}: FFmpeg {av.ffmpeg_version_info}, which PyAV {av.__version__} brings, has no "
        f"decoder for {codec}."
    )
    cure = (
        "Install PyAV from PyPI, which brings decoders for AV1, H.264, HEVC and VP9 (pip install "
        "--force-reinstall --only-binary av av), or re-encode the video with one of them."
    )
    return Problem("no_decoder", what, cure)


def _index(case: VideoCase) -> FrameIndex | Problem:
    try:
        index = case.engine.index(case.file)
    except VideoFileError as error:
        return _damaged(error)
    return lacking_decoder(index) or index


def lacking_decoder(index: FrameIndex) -> Problem | None:
    """Return the problem of a codec that this FFmpeg knows but has no decoder for."""
    lacking = [c.decoder for c in index.configs if not has_codec(c.decoder, "r")]
    return _no_decoder(index.file, f"{lacking[0]} video") if lacking else None


def _damaged(error: VideoFileError) -> Problem:
    cure = (
        "If a fresh copy has the same problem, the recording is damaged: train without the episode "
        "(on_bad_episode='quarantine')."
    )
    return Problem("damaged", str(error), cure)


def _pix_fmt(case: VideoCase, index: FrameIndex, frame: int) -> str | None:
    try:
        context = open_context(index.config_of(frame), on_gpu=False)
        found = decode_one(context, case.open_source(), index, frame)
    except av.FFmpegError:
        return None  # decoding the episode will say what is wrong
    return found.format.name if found else None


def _span(case: VideoCase, index: FrameIndex) -> tuple[Int64s, Span, Problem | None]:
    """Return the numbers of the episode's frames in the file, and how well their times match.

    If some do not match, the numbers are those of the nearest frames.
    """
    table, key = case.meta.episodes, case.key
    start_s = float(table[f"videos/{key}/from_timestamp"][case.episode])
    length = int(table["length"][case.episode])
    wanted = start_s + np.arange(length) / case.meta.fps
    numbers = index.match(wanted, tolerance_s=math.inf, where=key)
    problem = None
    try:
        numbers = _matched(case, index, wanted)
    except FrameTimestampError as error:
        cure = (
            "Copy the video and meta/ from one revision of the dataset; if the video is right and "
            "only its clock is coarse, raise tolerance_s."
        )
        problem = Problem("times", str(error), cure)
    errors = np.abs(index.times_s()[numbers] - wanted)
    first = int(numbers[0])
    span = Span(
        first_frame=first,
        last_frame=int(numbers[-1]),
        start_s=start_s,
        stop_s=float(table[f"videos/{key}/to_timestamp"][case.episode]),
        largest_error_s=float(errors.max()),
        tolerance_s=TOLERANCE_S,
        matches=problem is None,
        starts_at_key=first in index.start_frames,
    )
    return numbers, span, problem


def _matched(case: VideoCase, index: FrameIndex, wanted: npt.NDArray[np.float64]) -> Int64s:
    if case.reader is None:
        where = f"{case.key}, episode {case.episode}"
        return index.match(wanted, tolerance_s=TOLERANCE_S, where=where)
    case.reader.read(case.episode)
    return picture_numbers(case.meta, index, case.episode, case.key, tolerance_s=TOLERANCE_S)


def _decode(case: VideoCase, index: FrameIndex, numbers: Int64s) -> tuple[Picture, Rate] | Problem:
    entry = case.meta.features[case.key]
    try:
        shape = video_shape(case.engine.files.get(case.file), int(numbers[0]), entry)
        slot = np.zeros(shape, np.uint16 if is_depth(entry) else np.uint8)
        case.engine.read(case.file, numbers[:1], slot[None])
        picture = summarise_picture(slot, depth_name="depth code" if is_depth(entry) else None)
        return picture, _rate(case, index, numbers, slot)
    except VideoFileError as error:
        return _damaged(error)


def _rate(case: VideoCase, index: FrameIndex, numbers: Int64s, slot: npt.NDArray[np.uint8]) -> Rate:
    # All rows of `out` are the same memory: each picture overwrites the one before it, so an
    # episode of any length takes the memory of one picture.
    out = np.lib.stride_tricks.as_strided(slot, (len(numbers), *slot.shape), (0, *slot.strides))
    before = case.engine.statistics.summary()
    case.engine.read(case.file, numbers, out)
    after = case.engine.statistics.summary()
    spent = {name: after[name] - before[name] for name in ("fetch_s", "decode_s", "convert_s")}
    return Rate(
        images=len(numbers),
        images_per_s=len(numbers) / max(spent["decode_s"] + spent["convert_s"], 1e-9),
        read_s=spent["fetch_s"],
        read_bytes=int(index.sizes[index.packets_of(numbers)].sum(dtype=np.int64)),
    )


def _notes(case: VideoCase, check: CameraCheck, numbers: Int64s) -> list[str]:
    assert check.stream is not None
    assert check.span is not None
    entry = case.meta.features[case.key]
    notes = [] if check.picture is None else [*note_size(check.picture, entry)]
    gops = check.stream.gops
    listed = _listed_frames(case)
    if check.stream.num_frames != listed:
        notes.append(
            f"The file has {check.stream.num_frames} frames, but the episodes that meta/ puts into "
            f"it have {listed} together: it is from another revision of the dataset, or episodes "
            "were deleted."
        )
    if check.picture is not None and check.picture.is_black:
        notes.append("The episode's first picture is black: was the camera covered or not ready?")
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
        from robostream.loader import share_of_cores  # brings torch, which other tools do without

        size = check.stream.width, check.stream.height
        speed, cores = check.rate.images_per_s, share_of_cores(1)
        notes.append(where_to_decode(speed, cores, *size, gops.median_frames))
    if np.any(np.diff(numbers) != 1):
        notes.append("Frames of the file are left out or repeated within the episode.")
    return notes


def _listed_frames(case: VideoCase) -> int:
    """Return how many frames the episode table puts into the video file."""
    table, prefix = case.meta.episodes, f"videos/{case.key}"
    chunks, files = table[f"{prefix}/chunk_index"], table[f"{prefix}/file_index"]
    is_here = (chunks == chunks[case.episode]) & (files == files[case.episode])
    return int(table["length"][is_here].sum())
