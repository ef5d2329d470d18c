# SPDX-License-Identifier: Apache-2.0
"""Small videos of every kind the engine must decode, made with real encoders."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import numpy.typing as npt
from av.video.reformatter import VideoReformatter

from robostream.decode import one_thread
from robostream.write import normal_thread_priority
from tests.decode import boxes

QUIET_X265 = "log-level=none:pools=1:frame-threads=1"
FPS = 30


def pictures(count: int, *, width: int = 96, height: int = 64, seed: int = 0) -> Iterator[Any]:
    """Yield RGB pictures of shapes that move over a texture, no two alike."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    base = 110 + 50 * np.sin(x[..., None] / (7 + np.arange(3)) + y[..., None] / 9)
    base = base + rng.normal(0, 6, (height, width, 3))
    for t in range(count):
        picture = base.copy()
        for k in range(3):
            left = int((width - 16) * (0.5 + 0.5 * np.sin(0.21 * t + 2 * k + seed)))
            top = int((height - 16) * (0.5 + 0.5 * np.cos(0.17 * t + k)))
            picture[top : top + 16, left : left + 16] = (80 * k, 200 - 60 * k, (9 * t) % 256)
        yield np.clip(picture, 0, 255).astype(np.uint8)


def encode(
    path: Path,
    codec: str,
    options: dict[str, str],
    *,
    count: int = 48,
    size: tuple[int, int] = (96, 64),
    pix_fmt: str = "yuv420p",
    pts: Sequence[int] | None = None,
    movflags: str = "",
    seed: int = 0,
) -> Path:
    """Encode a video; `pts` are ticks of 1/600 s and default to a constant rate."""
    width, height = size
    muxing = {"movflags": movflags} if movflags else {}
    with normal_thread_priority(), av.open(str(path), "w", options=muxing) as container:
        stream = container.add_stream(codec, rate=FPS, options=options)
        stream.width, stream.height, stream.pix_fmt = width, height, pix_fmt
        stream.codec_context.thread_count = 1
        stream.codec_context.time_base = Fraction(1, 600)
        for t, picture in enumerate(pictures(count, width=width, height=height, seed=seed)):
            frame = _frame(picture, pix_fmt)
            frame.pts = 600 // FPS * t if pts is None else pts[t]
            frame.time_base = Fraction(1, 600)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def _frame(picture: npt.NDArray[np.uint8], pix_fmt: str) -> av.VideoFrame:
    if pix_fmt.startswith("gray12"):
        codes = picture[..., 0].astype(np.uint16) * 16 + picture[..., 1] % 16
        return av.VideoFrame.from_ndarray(codes, format=pix_fmt)
    return av.VideoFrame.from_ndarray(picture, format="rgb24")


def reference(path: Path) -> tuple[list[float], list[npt.NDArray[Any]]]:
    """Return times and pictures (CHW) of a file, decoded from first to last by its container."""
    times, decoded = [], []
    convert = VideoReformatter()
    with av.open(str(path)) as container:
        container.streams.video[0].thread_count = 1
        for frame in container.decode(video=0):
            times.append(float(frame.pts * frame.time_base))
            if frame.format.name.startswith("gray12"):
                decoded.append(frame.to_ndarray()[None])
                continue
            rgb = convert.reformat(frame, format="rgb24", **one_thread()).to_ndarray()
            decoded.append(rgb.transpose(2, 0, 1))
    return times, decoded


def _plain(codec: str, options: dict[str, str], **how: Any) -> Callable[[Path], Path]:
    return lambda folder: encode(folder / "plain.mp4", codec, options, **how)


def _open_gop_h264(folder: Path) -> Path:
    options = {"x264-params": "open-gop=1:keyint=12:min-keyint=12:bframes=3:b-adapt=0:scenecut=0"}
    return encode(folder / "open.mp4", "libx264", options)


def _with_edits(edits: Callable[[int], list[tuple[int, int]]]) -> Callable[[Path], Path]:
    """Replace the edit list of a file with B-frames; `edits` is told its first media time."""

    def make(folder: Path) -> Path:
        plain = encode(folder / "plain.mp4", "libx264", {"g": "12", "bf": "2"})
        content = plain.read_bytes()
        old = boxes.payload(content[content.rindex(b"moov") - 4 :], b"elst")
        (first,) = struct.unpack_from(">i", old, 12)
        changes = {b"edts": boxes.edit_list(*edits(first))}
        return boxes.rewrite(plain, folder / "edited.mp4", changes)

    return make


def _without_edits(folder: Path) -> Path:
    plain = encode(folder / "plain.mp4", "libx264", {"g": "12", "bf": "2"})
    return boxes.rewrite(plain, folder / "edited.mp4", {b"edts": None})


def join(paths: Sequence[Path], dest: Path, *, in_band: bool = False) -> Path:
    """Append files packet by packet; with `in_band`, all but the first bring parameter sets."""
    with av.open(str(dest), "w") as target:
        with av.open(str(paths[0])) as first:
            stream = target.add_stream_from_template(first.streams.video[0])
        shift = 0
        for path in paths:
            with av.open(str(path)) as source:
                head = _parameter_sets(source.streams.video[0].codec_context.extradata)
                last = 0
                for packet in source.demux(video=0):
                    if not packet.size:
                        continue
                    last = max(last, packet.pts + packet.duration)
                    if in_band and path != paths[0] and packet.is_keyframe:
                        packet = _with_content(packet, head + bytes(packet))
                    packet.pts += shift
                    packet.dts += shift
                    packet.stream = stream
                    target.mux(packet)
                shift += last
    return dest


def _parameter_sets(avcc: bytes) -> bytes:
    """Return the SPS and PPS of an avcC record as length-prefixed units."""
    sets, at = b"", 5
    for mask in (0x1F, 0xFF):
        count = avcc[at] & mask
        at += 1
        for _ in range(count):
            (size,) = struct.unpack_from(">H", avcc, at)
            sets += struct.pack(">I", size) + avcc[at + 2 : at + 2 + size]
            at += 2 + size
    return sets


def _with_content(packet: Any, content: bytes) -> Any:
    changed = av.Packet(content)
    changed.pts, changed.dts, changed.time_base = packet.pts, packet.dts, packet.time_base
    changed.duration, changed.is_keyframe = packet.duration, packet.is_keyframe
    return changed


def _joined(folder: Path) -> Path:
    options = {"g": "250", "bf": "3"}
    parts = [
        encode(folder / f"{n}.mp4", "libx264", options, count=20 + n, seed=n) for n in range(3)
    ]
    return join(parts, folder / "joined.mp4")


def _in_band(folder: Path) -> Path:
    """Two episodes of different encoder settings in one file, as FFmpeg joins them."""
    kinds = ({"g": "6", "x264-params": "cabac=1:ref=3"}, {"g": "6", "x264-params": "cabac=0:ref=1"})
    parts = [
        encode(folder / f"{n}.mp4", "libx264", kind, count=24, seed=n)
        for n, kind in enumerate(kinds)
    ]
    return join(parts, folder / "joined.mp4", in_band=True)


def _sample_entries(count: int) -> Callable[[Path], Path]:
    """A file whose second half refers to the last of several, equal sample entries."""
    return lambda folder: _with_entries(folder, count)


def _with_entries(folder: Path, count: int) -> Path:
    plain = encode(folder / "plain.mp4", "libx264", {"g": "6", "bf": "0"})
    content = plain.read_bytes()
    moov = content[content.rindex(b"moov") - 4 :]
    entry = boxes.payload(moov, b"stsd")[8:]
    offset = struct.unpack_from(">I", boxes.payload(moov, b"stco"), 8)[0]
    stsz = boxes.payload(moov, b"stsz")
    sizes = struct.unpack_from(f">{(len(stsz) - 12) // 4}I", stsz, 12)
    half = 24
    changes = {
        b"stsd": struct.pack(">II", 0, count) + entry * count,
        b"stsc": struct.pack(">II6I", 0, 2, 1, half, 1, 2, len(sizes) - half, count),
        b"stco": struct.pack(">II2I", 0, 2, offset, offset + sum(sizes[:half])),
    }
    return boxes.rewrite(plain, folder / "entries.mp4", changes)


def _unsized(folder: Path) -> Path:
    """AV1 whose packets end with a unit that does not state its size, as MP4 allows."""
    plain = encode(folder / "plain.mp4", "libsvtav1", _AV1)
    with av.open(str(plain)) as source, av.open(str(folder / "unsized.mp4"), "w") as container:
        stream = container.add_stream_from_template(source.streams.video[0], opaque=True)
        for packet in source.demux(video=0):
            if packet.size:
                changed = _with_content(packet, _without_last_size(bytes(packet)))
                changed.stream = stream
                container.mux(changed)
    return folder / "unsized.mp4"


def _without_last_size(packet: bytes) -> bytes:
    at = 0
    while True:
        start, head = at, packet[at]
        size = shift = 0
        is_more = True
        while is_more:
            at += 1
            size |= (packet[at] & 127) << shift
            shift, is_more = shift + 7, packet[at] > 127
        at += 1 + size
        if at == len(packet):
            return packet[:start] + bytes([head & ~2]) + packet[at - size :]


def _with_sound(folder: Path) -> Path:
    """Video packets with stretches of another track between them."""
    path = folder / "sound.mp4"
    with av.open(str(path), "w") as container:
        video = container.add_stream("libx264", rate=FPS, options={"g": "6"})
        video.width, video.height, video.pix_fmt = 96, 64, "yuv420p"
        sound = container.add_stream("pcm_s16le", rate=48000, layout="stereo")
        silence = np.zeros((1, 2 * 48000 // FPS), np.int16)
        for t, picture in enumerate(pictures(48)):
            container.mux(video.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
            heard = av.AudioFrame.from_ndarray(silence, format="s16", layout="stereo")
            heard.rate, heard.pts = 48000, t * 48000 // FPS
            container.mux(sound.encode(heard))
        container.mux(video.encode(None))
    return path


_AV1 = {"g": "2", "crf": "30", "preset": "12"}
_VFR = [20 * t + (t % 3) * 7 for t in range(48)]
_CLOSED = f"{QUIET_X265}:open-gop=0:keyint=12:min-keyint=12:bframes=3"
_OPEN = f"{QUIET_X265}:open-gop=1:keyint=12:min-keyint=12:bframes=3:b-adapt=0:scenecut=0"

KINDS: dict[str, Callable[[Path], Path]] = {
    "av1_g2": _plain("libsvtav1", _AV1),
    "av1_g30": _plain("libsvtav1", _AV1 | {"g": "30"}),
    "av1_small": _plain("libsvtav1", _AV1, size=(80, 64)),
    "av1_unsized": _unsized,
    # OpenCV's "mp4v", whose decoder looks at what follows a packet.
    "mpeg4": _plain("mpeg4", {"g": "6"}),
    "h264_g2": _plain("libx264", {"g": "2"}),
    "h264_bframes": _plain("libx264", {"g": "12", "bf": "3"}),
    "h264_g250": _plain("libx264", {"g": "250", "bf": "3"}, count=260),
    "h264_open_gop": _open_gop_h264,
    "h264_intra_refresh": _plain("libx264", {"x264-params": "intra-refresh=1:keyint=12:bframes=0"}),
    "hevc_closed": _plain("libx265", {"x265-params": _CLOSED}),
    "hevc_open_gop": _plain("libx265", {"x265-params": _OPEN}),
    "vp9": _plain("libvpx-vp9", {"g": "12", "lag-in-frames": "8", "auto-alt-ref": "1"}),
    "depth": _plain(
        "libx265", {"x265-params": f"{QUIET_X265}:lossless=1:keyint=2"}, pix_fmt="gray12le"
    ),
    "ten_bit": _plain("libx265", {"x265-params": _CLOSED}, pix_fmt="yuv420p10le"),
    "full_range": _plain("libx264", {"g": "6"}, pix_fmt="yuvj420p"),
    "odd_width": _plain("libx264", {"g": "6"}, size=(90, 50)),
    "444": _plain("libx264", {"g": "6"}, pix_fmt="yuv444p"),
    "variable_rate": _plain("libx264", {"g": "12", "bf": "2"}, pts=_VFR),
    "moov_first": _plain("libx264", {"g": "12"}, movflags="faststart"),
    "fragmented": _plain("libx264", {"g": "12"}, movflags="frag_keyframe+empty_moov"),
    "late_start": _plain("libx264", {"g": "12", "bf": "2"}, pts=[100 + 20 * t for t in range(48)]),
    "no_edit_list": _without_edits,
    "empty_edit": _with_edits(lambda first: [(700, -1), (1600, first)]),
    "trimmed_start": _with_edits(lambda first: [(1000, first + 12800 // FPS * 5)]),
    "trimmed_end": _with_edits(lambda first: [(1000, first)]),
    "two_edits": _with_edits(lambda first: [(500, first), (600, first + 12800 // FPS * 20)]),
    "joined_episodes": _joined,
    "in_band_parameters": _in_band,
    "two_sample_entries": _sample_entries(2),
    "many_sample_entries": _sample_entries(257),
    "with_sound": _with_sound,
}
