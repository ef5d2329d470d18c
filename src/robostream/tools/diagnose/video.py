# SPDX-License-Identifier: Apache-2.0
"""Checks a camera stored as MP4: its file, its stream, the episode's frames, and decoding them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import av
import numpy as np
import numpy.typing as npt
from av.codec.hwaccel import HWAccel

from robostream.assemble import OpenedDataset, RowReader, find_video_shape, match_frames
from robostream.config import TOLERANCE_S
from robostream.decode import (
    FrameEngine,
    FrameIndex,
    VideoSource,
    has_codec,
    new_context,
    new_packet,
)
from robostream.errors import FrameTimestampError, StorageError, VideoFileError
from robostream.meta import LeRobotDatasetMetadata, is_depth
from robostream.storage import ByteSource, FileOpener, SourceFile
from robostream.tools.diagnose.camera import (
    CameraCheck,
    DecodeRate,
    EpisodeSpan,
    Findings,
    FrameStats,
    Gops,
    GpuDecoding,
    VideoStream,
    check_camera,
    note_size,
    summarise_frame,
)
from robostream.tools.diagnose.file import FileCheck, Problem, check_file, explain_unreadable
from robostream.tools.diagnose.machine import Gpu, advise_device

Int64s = npt.NDArray[np.int64]

# Codecs that every FFmpeg knows; for other tags, the file is opened with FFmpeg to find out.
_USUAL_TAGS = frozenset(("avc1", "avc3", "hvc1", "hev1", "av01", "vp09"))
# In an stsd box, the tag of the first entry is 16 bytes after the start of the box's name.
_TAG = re.compile(rb"vide.*?stsd.{12}(.{4})", re.DOTALL)
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
    return check_camera(inputs.key, "video", file, partial(_examine, inputs, file))


def _examine(inputs: VideoInputs, file: FileCheck, found: Findings) -> None:
    try:
        index = _index(inputs, file)
        numbers, span, problems = _span(inputs, index)
        first = int(numbers[0])
        stream = describe_stream(index, _pix_fmt(inputs, index, first))
        gpu = _try_gpu(inputs, index, first)
        frame = rate = None
        try:
            frame, rate = _decode(inputs, index, numbers)
        except VideoFileError as error:
            problems.append(_damaged(error))
        found |= {"stream": stream, "span": span, "picture": frame, "rate": rate, "gpu": gpu}
        found |= {"problems": tuple(problems), "notes": tuple(_notes(inputs, numbers, **found))}
    except (StorageError, VideoFileError) as error:
        raise explain_unreadable(error) from error


def _index(inputs: VideoInputs, file: FileCheck) -> FrameIndex:
    """Return the index of the video file. Raises Problem if it is damaged or has no decoder."""
    _check_tag(inputs, file)
    try:
        index = inputs.engine.index(inputs.file)
    except VideoFileError as error:
        raise _damaged(error) from error
    problem = explain_missing_decoder(index)
    if problem is not None:
        raise problem
    return index


def _check_tag(inputs: VideoInputs, file: FileCheck) -> None:
    """Raise Problem for a codec that this FFmpeg does not know at all."""
    moov = next((box for box in file.boxes if box.kind == "moov"), None)
    tag = _TAG.search(inputs.open_source().read(moov.start, moov.stop)) if moov else None
    name = tag[1].decode("ascii", "backslashreplace") if tag else None
    if name is None or name in _USUAL_TAGS:
        return
    try:
        with av.open(SourceFile(inputs.open_source()), "r") as container:
            known = all(s.codec_context is not None for s in container.streams.video)
    except av.FFmpegError:
        return  # the file is damaged; indexing it gives a better message
    if not known:
        raise _no_decoder(file.path, f"the codec with the tag {name!r}")


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


def _span(inputs: VideoInputs, index: FrameIndex) -> tuple[Int64s, EpisodeSpan, list[Problem]]:
    """Return the numbers of the episode's frames in the file, and how well their times match.

    For times without a matching frame, the number is that of the nearest frame.
    """
    table, key, episode = inputs.meta.episodes, inputs.key, inputs.episode
    start_s = float(table[f"videos/{key}/from_timestamp"][episode])
    wanted = start_s + np.arange(int(table["length"][episode])) / inputs.meta.fps
    numbers = index.match(wanted, tolerance_s=math.inf, where=key)
    problems = []
    try:
        if inputs.reader is None:
            where = f"{key}, episode {episode}"
            numbers = index.match(wanted, tolerance_s=TOLERANCE_S, where=where)
        else:
            inputs.reader.read(episode)
            numbers = match_frames(inputs.meta, index, episode, key, tolerance_s=TOLERANCE_S)
    except FrameTimestampError as error:
        cure = (
            "Copy the video and meta/ from one revision of the dataset; if the video is right and "
            "only its clock is coarse, raise tolerance_s."
        )
        problems.append(Problem("times", str(error), cure))
    errors = np.abs(index.times_s()[numbers] - wanted)
    first = int(numbers[0])
    span = EpisodeSpan(
        first_frame=first,
        last_frame=int(numbers[-1]),
        start_s=start_s,
        stop_s=float(table[f"videos/{key}/to_timestamp"][episode]),
        largest_error_s=float(errors.max()),
        tolerance_s=TOLERANCE_S,
        matches=not problems,
        starts_at_key=first in index.start_frames,
    )
    return numbers, span, problems


def describe_stream(index: FrameIndex, pix_fmt: str | None) -> VideoStream:
    """Return the properties of a stream from its index. Pure."""
    config = index.configs[0]
    times_s = index.times_s()
    frames = index.num_frames
    # The last frame is assumed to last as long as the average of the others.
    duration_s = float(times_s[-1] - times_s[0]) * frames / max(frames - 1, 1)
    bits = 8 * float(index.sizes.sum(dtype=np.int64))
    return VideoStream(
        codec=av.Codec(config.decoder, "r").canonical_name,
        decoder=config.decoder,
        pix_fmt=pix_fmt,
        width=config.width,
        height=config.height,
        num_frames=frames,
        duration_s=duration_s,
        bits_per_s=bits / duration_s if duration_s else 0.0,
        gops=describe_gops(index),
    )


def describe_gops(index: FrameIndex) -> Gops:
    """Return how far apart the frames are at which decoding can start. Pure."""
    lengths = index.gop_lengths()
    edges = [*index.starts.tolist(), len(index.sizes)]
    leading = sum(
        any(0 <= frame < first_frame for frame in index.frames_of(edges[gop], edges[gop + 1]))
        for gop, first_frame in enumerate(index.start_frames.tolist())
    )
    return Gops(
        count=len(lengths),
        min_frames=int(lengths.min()),
        median_frames=float(np.median(lengths)),
        max_frames=int(lengths.max()),
        has_b_frames=index.packets is not None,
        num_with_leading=leading,
    )


def _pix_fmt(inputs: VideoInputs, index: FrameIndex, frame: int) -> str | None:
    config = index.config_of(frame)
    try:
        context = new_context(config, config.decoder, None)
        found = _decode_one(context, inputs.open_source(), index, frame)
    except av.FFmpegError:
        return None  # decoding the episode gives the reason
    return found.format.name if found else None


def _try_gpu(inputs: VideoInputs, index: FrameIndex, frame: int) -> GpuDecoding:
    """Return whether the GPU decodes a frame of this video. Tries it unless the machine cannot."""
    if inputs.gpu.obstacle is not None:
        return GpuDecoding(False, inputs.gpu.obstacle)
    config = index.config_of(frame)
    # NVDEC works with FFmpeg's own decoder of a codec, which has the codec's name.
    codec = av.Codec(config.decoder, "r").canonical_name
    try:
        context = new_context(config, codec, HWAccel("cuda", allow_software_fallback=False))
        if not context.is_hwaccel:
            return GpuDecoding(False, f"FFmpeg has no NVIDIA decoder for {codec}")
        image = _decode_one(context, inputs.open_source(), index, frame)
    except av.FFmpegError as error:
        return GpuDecoding(False, f"the GPU cannot decode this {codec} video ({error.strerror})")
    except (StorageError, VideoFileError) as error:
        return GpuDecoding(False, f"not tried: {error}")
    if image is None:
        return GpuDecoding(False, f"the GPU returns no frame of this {codec} video")
    return GpuDecoding(True, f"a frame of this {codec} video was decoded to {image.format.name}")


def _decode_one(
    context: av.VideoCodecContext, source: ByteSource, index: FrameIndex, frame: int
) -> av.VideoFrame | None:
    """Return the last frame that a new decoder outputs for the packets up to a frame's, if any."""
    gop = int(index.gops_of(np.array([frame]))[0])
    stop = int(index.packets_of(np.array([frame]))[0]) + 1
    images: list[av.VideoFrame] = []
    for packet in range(int(index.starts[gop]), stop):
        at = int(index.byte_offsets[packet])
        content = source.read(at, at + int(index.sizes[packet]))
        images = context.decode(new_packet(content)) or images
    images = context.decode(None) or images
    return images[-1] if images else None


def _decode(
    inputs: VideoInputs, index: FrameIndex, numbers: Int64s
) -> tuple[FrameStats, DecodeRate]:
    """Return the episode's first frame, and the rate at which all its frames are decoded."""
    engine, entry = inputs.engine, inputs.meta.features[inputs.key]
    dtype, depth_name = (np.uint16, "depth code") if is_depth(entry) else (np.uint8, None)
    shape = find_video_shape(engine.files.get(inputs.file), int(numbers[0]), entry)
    slot = np.zeros(shape, dtype)
    engine.read(inputs.file, numbers[:1], slot[None])
    stats = summarise_frame(slot, depth_name=depth_name)
    # All rows of `out` share the memory of one frame, so a long episode needs no more.
    out = np.lib.stride_tricks.as_strided(slot, (len(numbers), *shape), (0, *slot.strides))
    before = engine.statistics.summary()
    engine.read(inputs.file, numbers, out)
    after = engine.statistics.summary()
    spent = {name: after[name] - before[name] for name in ("fetch_s", "decode_s", "convert_s")}
    return stats, DecodeRate(
        images=len(numbers),
        images_per_s=len(numbers) / max(spent["decode_s"] + spent["convert_s"], 1e-9),
        read_s=spent["fetch_s"],
        read_bytes=int(index.sizes[index.packets_of(numbers)].sum(dtype=np.int64)),
    )


def _notes(
    inputs: VideoInputs,
    numbers: Int64s,
    *,
    stream: VideoStream,
    span: EpisodeSpan,
    picture: FrameStats | None,
    rate: DecodeRate | None,
    gpu: GpuDecoding,
) -> Iterator[str]:
    gops = stream.gops
    if picture is not None:
        yield from note_size(picture, inputs.meta.features[inputs.key])
    listed = _listed_frames(inputs)
    if stream.num_frames != listed:
        yield (
            f"The file has {stream.num_frames} frames, but the episodes that meta/ puts into "
            f"it have {listed} together: it is from another revision of the dataset, or episodes "
            "were deleted."
        )
    if picture is not None and picture.is_black:
        yield "The episode's first frame is black: was the camera covered or not ready?"
    if gops.max_frames > _LONG_GOP_FRAMES:
        yield (
            f"Key frames are up to {gops.max_frames} frames apart, so one frame read at random "
            "costs up to as many decoded ones. Give the frame cache room for the pool, or encode "
            "with a key frame every 2 frames."
        )
    if not span.starts_at_key:
        yield (
            "The episode does not start with a key frame, so decoding it starts at a frame of the "
            "episode before it."
        )
    if gpu.works and rate is not None:
        from robostream.loader import share_of_cores  # imports torch, which other tools do not need

        speed, cores = rate.images_per_s, share_of_cores(1)
        yield advise_device(speed, cores, stream.width, stream.height, gops.median_frames)
    if np.any(np.diff(numbers) != 1):
        yield "Frames of the file are left out or repeated within the episode."


def _listed_frames(inputs: VideoInputs) -> int:
    """Return how many frames the episode table puts into the video file."""
    table, prefix = inputs.meta.episodes, f"videos/{inputs.key}"
    chunks, files = table[f"{prefix}/chunk_index"], table[f"{prefix}/file_index"]
    is_here = (chunks == chunks[inputs.episode]) & (files == files[inputs.episode])
    return int(table["length"][is_here].sum())
