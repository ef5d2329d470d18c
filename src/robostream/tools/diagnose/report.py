# SPDX-License-Identifier: Apache-2.0
"""A diagnosis as text for people and as JSON for scripts. Pure."""

from __future__ import annotations

import dataclasses
import json
import textwrap
from collections.abc import Iterable, Iterator

from robostream.byte_sizes import format_bytes
from robostream.tools.diagnose.camera import CameraCheck, EpisodeSpan, VideoStream
from robostream.tools.diagnose.episode import DatasetCheck, Diagnosis
from robostream.tools.diagnose.file import FileCheck
from robostream.tools.diagnose.machine import AV1_CARDS, Software

_INDEX_WORDS = {"front": "index at the front", "back": "index at the end", "nowhere": "no index"}
_WIDTH = 100
_LABEL = 16
_Row = tuple[str, str]


def diagnosis_json(diagnosis: Diagnosis) -> str:
    """Return the whole diagnosis as JSON."""
    figures = dataclasses.asdict(diagnosis) | {"decodes": diagnosis.decodes}
    for name, word in (("problems", "problem"), ("notes", "note")):
        figures[name] = [{"place": subject, word: item} for subject, item in figures[name]]
    return json.dumps(figures, indent=2)


def diagnosis_text(diagnosis: Diagnosis) -> str:
    """Return the diagnosis as text for people: what was found, then what is wrong."""
    parts = [
        _section("software", _software_rows(diagnosis.software)),
        _section("GPU decoding", _gpu_rows(diagnosis)),
    ]
    if diagnosis.dataset is not None:
        parts.append(_section("dataset", _dataset_rows(diagnosis.dataset)))
    parts += [
        _section(f"camera {camera.key}", _camera_rows(camera, diagnosis))
        for camera in diagnosis.cameras
    ]
    if diagnosis.notes:
        parts.append("\n".join(["notes", *_paragraphs(_grouped(diagnosis.notes))]))
    parts.append(_verdict(diagnosis))
    return "\n\n".join(parts)


def _verdict(diagnosis: Diagnosis) -> str:
    what = f"episode {diagnosis.dataset.episode}" if diagnosis.dataset else "the dataset"
    if diagnosis.decodes:
        images = sum(camera.rate.images for camera in diagnosis.cameras if camera.rate)
        return f"OK: {what} decodes; images: {images:,}, cameras: {len(diagnosis.cameras)}."
    lines = [f"FAILED: problems with {what}: {len(diagnosis.problems)}"]
    for subject, problem in diagnosis.problems:
        lines += _paragraphs([(subject, problem.what)])
        lines += _paragraphs([("  what to do", problem.cure)] if problem.cure else [])
    return "\n".join(lines)


def _section(title: str, rows: Iterable[_Row]) -> str:
    indent = " " * (_LABEL + 2)
    return "\n".join([title, *(_fill(text, f"  {label:{_LABEL}}", indent) for label, text in rows)])


def _paragraphs(items: Iterable[_Row]) -> list[str]:
    return [_fill(f"{subject}: {text}", "  ", "    ") for subject, text in items]


def _fill(text: str, first_indent: str, indent: str) -> str:
    return textwrap.fill(
        text,
        _WIDTH,
        initial_indent=first_indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _grouped(notes: Iterable[_Row]) -> list[_Row]:
    """Return each note once, with all its subjects."""
    subjects: dict[str, list[str]] = {}
    for subject, note in notes:
        subjects.setdefault(note, []).append(subject)
    return [(", ".join(names), note) for note, names in subjects.items()]


def _software_rows(software: Software) -> Iterator[_Row]:
    others = dict(software.packages)
    libraries = software.ffmpeg_libraries
    yield (
        "robostream",
        f"{others.pop('robostream')} on Python {software.python}, {software.platform}",
    )
    yield (
        "PyAV",
        f"{others.pop('av')} with FFmpeg {software.ffmpeg} (libavcodec {libraries['libavcodec']}, "
        f"libavformat {libraries['libavformat']})",
    )
    yield "decoders", ", ".join(f"{c} {n or 'MISSING'}" for c, n in software.decoders.items())
    yield "torch", others.pop("torch")
    yield "torchcodec", f"{software.torchcodec}; optional"
    yield "others", ", ".join(f"{name} {version}" for name, version in others.items())


def _gpu_rows(diagnosis: Diagnosis) -> Iterator[_Row]:
    gpu = diagnosis.gpu
    yield "possible", f"no: {gpu.obstacle}" if gpu.obstacle else "tried with each video, see below"
    yield "FFmpeg", "built for NVIDIA" if gpu.ffmpeg_has_cuda else "built without NVIDIA"
    if gpu.driver is not None:
        library = "with" if gpu.has_video_library else "WITHOUT"
        yield "driver", f"NVIDIA {gpu.driver}, {library} its video library"
        yield "cards", ", ".join(gpu.cards) or "torch sees none"
    if any(camera.stream and camera.stream.codec == "av1" for camera in diagnosis.cameras):
        yield "AV1", AV1_CARDS


def _dataset_rows(dataset: DatasetCheck) -> Iterator[_Row]:
    if dataset.meta_url != dataset.url:
        yield "meta/", dataset.meta_url
        yield "data/, videos/", dataset.url
    else:
        yield "root", dataset.url
    if dataset.revision is not None:
        yield "commit", dataset.revision
    yield (
        "content",
        f"{dataset.codebase_version}, {dataset.total_episodes:,} episodes, "
        f"{dataset.total_frames:,} frames, {dataset.fps} fps",
    )
    state = "its rows CANNOT BE READ" if dataset.table.problem else "its rows are readable"
    yield f"episode {dataset.episode}", f"{dataset.num_frames:,} frames; {state}"
    yield "rows", _file_words(dataset.table, dataset.url)


def _camera_rows(camera: CameraCheck, diagnosis: Diagnosis) -> Iterator[_Row]:
    yield "file", _file_words(camera.file, diagnosis.dataset.url if diagnosis.dataset else "")
    if camera.file.first_bytes:
        content = bytes.fromhex(camera.file.first_bytes)
        yield "first bytes", content.hex(" ", 4)
        letters = "".join(chr(byte) if 32 < byte < 127 else "." for byte in content)
        yield "as text", f"{letters}  {camera.file.content.words}"
    if camera.file.boxes:
        kinds = [box.kind for box in camera.file.boxes]
        shown = " ".join(kinds[:8]) + (" ..." if len(kinds) > 8 else "")
        yield "layout", f"{shown} ({_INDEX_WORDS[camera.file.index_place or 'nowhere']})"
    if camera.stream is not None:
        yield from _stream_rows(camera.stream)
    if camera.span is not None:
        yield from _span_rows(camera.span)
    if camera.picture is not None:
        stats = [f"{c.name} {c.mean:.1f} ({c.min:g} to {c.max:g})" for c in camera.picture.channels]
        black = "; it is BLACK" if camera.picture.is_black else ""
        yield "first frame", f"mean (range) {', '.join(stats)}{black}"
    if (rate := camera.rate) is not None:
        read = f"{format_bytes(rate.read_bytes)} read in {rate.read_s * 1e3:.1f} ms"
        speed = f"{rate.images_per_s:,.0f} images/s on one thread"
        yield "decoding", f"{rate.images:,} images in order, {speed}; {read}"
    if camera.gpu is not None and diagnosis.gpu.obstacle is None:
        yield "on the GPU", f"{'yes' if camera.gpu.works else 'no'}: {camera.gpu.reason}"
    for problem in camera.problems:
        yield "PROBLEM", problem.kind.replace("_", " ") + " (see below)"


def _file_words(file: FileCheck, root: str) -> str:
    path = file.path.removeprefix(f"{root}/")
    if file.size_bytes is not None:
        return f"{path}, {format_bytes(file.size_bytes)}"
    is_missing = file.problem is not None and file.problem.kind == "missing_file"
    return f"{path}, {'NOT FOUND' if is_missing else 'NOT READABLE'}"


def _stream_rows(stream: VideoStream) -> Iterator[_Row]:
    gops = stream.gops
    decoder = "" if stream.decoder == stream.codec else f" by {stream.decoder}"
    yield (
        "video",
        f"{stream.codec}{decoder}, {stream.pix_fmt or 'format unknown'}, "
        f"{stream.width}x{stream.height}, {stream.num_frames:,} frames, {stream.duration_s:.1f} s, "
        f"{stream.bits_per_s / 1e3:,.0f} kbit/s",
    )
    usual = f"every {gops.median_frames:g} frames"
    if gops.min_frames != gops.max_frames:
        usual += f" (shortest {gops.min_frames}, longest {gops.max_frames})"
    order = "with B-frames" if gops.has_b_frames else "no B-frames"
    if gops.num_with_leading:
        order += f", GOPs with leading frames (open GOPs): {gops.num_with_leading}"
    yield "key frames", f"{usual}, {order}"


def _span_rows(span: EpisodeSpan) -> Iterator[_Row]:
    frames = f"frames {span.first_frame:,} to {span.last_frame:,} of the file"
    yield "episode", f"{frames}, {span.start_s:.3f} s to {span.stop_s:.3f} s"
    error = (
        f"at most {span.largest_error_s * 1e3:.3f} ms off, {span.tolerance_s * 1e3:g} ms allowed"
    )
    yield "times", f"{'match' if span.matches else 'DO NOT MATCH'} the table's: {error}"
