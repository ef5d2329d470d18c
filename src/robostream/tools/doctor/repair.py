# SPDX-License-Identifier: Apache-2.0
"""`repair_dataset`: a copy of a dataset with everything repaired that needs no invented data.

Counts, places and spans follow from the files, statistics from the rows. If episodes remain that
cannot be read, the copy ends before the first of them: the verified prefix.
"""

from __future__ import annotations

import io
import json
import os
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice, takewhile
from pathlib import Path
from typing import Any

import av
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from robostream import config
from robostream.assemble import DatasetLocation, SampleOptions, compute_stats, open_dataset
from robostream.errors import WriteError
from robostream.meta import LeRobotDatasetMetadata, noting_contradictions
from robostream.storage import FileOpener, as_location, write_bytes_atomic
from robostream.tools.doctor.examine import (
    DoctorOptions,
    Examination,
    examination_json,
    examination_text,
    examine_dataset,
    list_strays,
)
from robostream.tools.doctor.files import Int64s, SampleTable, list_files, read_file
from robostream.tools.doctor.findings import Verdict, describe_episodes, fill, shorten
from robostream.tools.doctor.tables import split_texts
from robostream.tools.recorded_stats import write_stats
from robostream.tools.staging import check_folders, copy_cheaply, visible_files
from robostream.write import PARQUET_OPTIONS, VideoPart, frame_rate, iter_packets, split_videos

# Errors that are no matter of episodes; with others an episode is left out, and all after it.
_NOT_FATAL = ("tasks", "leakage")
_STATS = ("stats-missing", "stats-wrong", "stats-stale", "quantiles", "image-stats")


@dataclass(frozen=True, slots=True)
class RepairReport:
    """What was repaired, the episodes that the copy lacks, and what the doctor says of it."""

    path: Path
    repairs: tuple[str, ...]
    left_out: range
    examined: Examination


def repair_dataset(
    root: str, dest: Path, options: DoctorOptions, *, before: Examination
) -> RepairReport:
    """Write a repaired copy of a local v3.0 dataset to a new folder, and examine it.

    It must be sound at the level of the options. `before` is what the doctor says of the dataset.
    Raises WriteError if a folder is unsuitable, or if nothing can be repaired.
    """
    source, dest = check_folders(root, dest)
    if before.meta is None or before.meta.info.is_v2:
        why = "is of v2.x: convert it first" if before.meta else "cannot be opened: see the message"
        raise WriteError(f"{source}: want a v3.0 dataset to repair; this one {why}.")
    dest.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{dest.name}-", dir=dest.parent) as temp:
        copy = Path(temp) / dest.name
        for name in visible_files(source):
            if (source / name).exists():  # no broken link
                copy_cheaply(source / name, copy / name, link=False)
        repairs = [text for step in _STEPS for text in step(_Copy(copy))]
        location, total = DatasetLocation(dest.name, root=copy), len(before.meta.episodes)
        found = examine_dataset(location, options).findings
        remarks = (r for f in found if f.check.id not in _NOT_FATAL for r in f.remarks)
        bad = (e for r in remarks if r.verdict == Verdict.ERROR for e in r.episodes)
        keep = min(bad, default=total)
        repairs += [_truncate(_Copy(copy), keep)] if keep < total else []
        if strays := list_strays(FileOpener(as_location(copy)), _Copy(copy).listed):
            repairs.append(f"left out files that belong to no episode: {shorten(strays)}")
        for stray in strays:
            (copy / stray).unlink()
        wrong = [r.what for f in before.findings if f.check.id in _STATS for r in f.remarks]
        if repairs or wrong:
            cameras = tuple(before.meta.camera_keys)
            images = keep < total or any(what.startswith(cameras) for what in wrong)
            repairs.append(_compute_stats(copy, images=images))
        examined = examine_dataset(location, options)
        os.replace(copy, dest)
    return RepairReport(dest, tuple(repairs), range(keep, total), replace(examined, url=str(dest)))


class _Copy:
    """The copy as it is now: its metadata, and the files that it refers to."""

    def __init__(self, root: Path) -> None:
        with noting_contradictions() as contradictions:
            self.meta = LeRobotDatasetMetadata(root.name, root=root)
        self.root, self.is_contradicted = root, bool(contradictions)
        self.lengths, self.fps = self.meta.episodes["length"], self.meta.fps
        self.listed = list(list_files(self.meta))
        self.opener = FileOpener(as_location(root))


def _salvage(copy: _Copy) -> Iterator[str]:
    """Cut bytes after the footer of Parquet files, and keep the whole frames of cut-off videos."""
    for file in copy.listed:
        problem = getattr(read_file(copy.opener, file), "problem", None)
        if problem is None or problem.kind != "damaged":
            continue
        path = copy.root / file.file
        if not file.camera and (content := _trim_parquet(path.read_bytes())):
            path.write_bytes(content)
            yield f"{file.file}: cut what followed the footer"
        elif file.camera and _cut_video(path, np.cumsum(file.column("length")), copy.fps):
            yield f"{file.file}: kept the frames that are whole"


def _trim_parquet(content: bytes) -> bytes | None:
    """Return a Parquet file up to the end of its last footer."""
    end = len(content)
    while (end := content.rfind(b"PAR1", 0, end)) > 4:
        with suppress(pa.ArrowInvalid, OSError):
            pq.read_metadata(io.BytesIO(content[: end + 4]))
            return content[: end + 4]
    return None


def _cut_video(path: Path, stops: Int64s, fps: float) -> bool:
    """Keep whole frames up to the last possible stop, as encoded; return whether there is one."""
    shown: list[int] = []
    rate, target = frame_rate(fps), path.with_suffix(".part")
    with suppress(av.FFmpegError, WriteError, IndexError):
        packets = islice(iter_packets(path, rate), int(stops[-1]))
        shown.extend(p.pts or 0 for p in takewhile(lambda packet: not packet.is_corrupt, packets))
    keep = int(stops[stops <= len(shown)].max(initial=0))
    reorder = max((place - frame for place, frame in enumerate(shown[:keep])), default=0)
    if not keep or sorted(shown[:keep]) != list(range(keep)):
        return False
    try:
        split_videos(path, [VideoPart(target, 0, keep, reorder)], rate=rate)
        os.replace(target, path)
    except (av.FFmpegError, WriteError, ValueError):  # ValueError: of no codec that FFmpeg knows
        target.unlink(missing_ok=True)
        return False
    return True


def _repair_places(copy: _Copy) -> Iterator[str]:
    """Count episodes and frames again, and take the file of each episode from its rows."""
    lengths = copy.lengths
    places: dict[int, list[int]] = defaultdict(list)
    for file in copy.listed:
        if not file.camera:
            for episode, count in _list_episodes(copy.root / file.file):
                if 0 <= episode < len(lengths) and lengths[episode] == count:
                    places[episode].append(int(file.episodes[0]))
    stops = np.cumsum(lengths)
    columns = {"dataset_from_index": stops - lengths, "dataset_to_index": stops}
    if all(len(places[episode]) == 1 for episode in range(len(lengths))):
        like = [places[episode][0] for episode in range(len(lengths))]
        names = ("data/chunk_index", "data/file_index")
        found = {name: copy.meta.episodes[name][like] for name in names}
        if any((found[name] != copy.meta.episodes[name]).any() for name in names):
            columns |= found
            yield "took the file of each episode from its rows"
    if _write_tables(copy, columns, len(lengths)) or copy.is_contradicted:
        yield "counted episodes, frames and tasks again"


def _list_episodes(path: Path) -> list[tuple[int, int]]:
    """Return each run of one episode in a file, as its number and its rows."""
    with suppress(pa.ArrowException, KeyError, OSError):
        numbers = pq.read_table(path, columns=["episode_index"]).column(0).to_numpy()
        edges = np.flatnonzero(np.diff(numbers, prepend=-1, append=-1))
        return list(zip(numbers[edges[:-1]].tolist(), np.diff(edges).tolist(), strict=True))
    return []


def _repair_spans(copy: _Copy) -> Iterator[str]:
    """Take spans from the order of episodes in videos that have exactly their frames."""
    recorded = copy.meta.episodes
    columns = {name: recorded[name].copy() for name in recorded.columns if "_time" in name}
    for file in copy.listed:
        table = read_file(copy.opener, file) if file.camera else None
        if not isinstance(table, SampleTable):
            continue
        span, own, frames = f"videos/{file.camera}", file.episodes, file.column("length")
        starts_s, stops_s = columns[f"{span}/from_timestamp"], columns[f"{span}/to_timestamp"]
        is_wrong = (table.errors_s > config.TOLERANCE_S).any() or table.is_shared().any()
        if is_wrong and table.index.num_frames == frames.sum():
            starts_s[own] = table.index.times_s()[np.cumsum(frames) - frames]
        ends_s = starts_s[own] + frames / copy.fps
        is_off = np.abs(stops_s[own] - ends_s) * copy.fps > 0.5
        stops_s[own] = np.where(is_off, ends_s, stops_s[own])
    if any((np.abs(columns[name] - recorded[name]) > 1e-9).any() for name in columns):
        _write_tables(copy, columns, len(recorded))
        yield "took the spans of episodes from their videos"


def _repair_rows(copy: _Copy) -> Iterator[str]:
    """Number and time rows again where their times since the first show that they are in order."""
    lengths = copy.lengths
    for file in copy.listed:
        path = copy.root / file.file
        with suppress(pa.ArrowException, KeyError, OSError):
            if file.camera or pq.read_metadata(path).num_rows != lengths[file.episodes].sum():
                continue
            episodes, frames = file.frames()
            index = (np.cumsum(lengths) - lengths)[episodes] + frames
            wanted = {"episode_index": episodes, "frame_index": frames, "index": index}
            found = pq.read_table(path, columns=[*wanted, "timestamp"])
            kinds = found.schema.types
            if not all(pa.types.is_integer(kind) or pa.types.is_floating(kind) for kind in kinds):
                continue
            times_s, wanted_s = found["timestamp"].to_numpy(), frames / copy.fps
            starts_s = np.repeat(times_s[frames == 0], file.column("length"))
            if not np.allclose(times_s - starts_s, wanted_s, rtol=0, atol=1e-3):
                continue
            if not np.allclose(times_s, wanted_s, rtol=0, atol=1e-3):
                wanted |= {"timestamp": wanted_s}
            if any((found[k].to_numpy() != v).any() for k, v in wanted.items()):
                _write_rows(path, _set_columns(pq.read_table(path), wanted), file.column("length"))
                yield f"{file.file}: numbered its rows again"


def _truncate(copy: _Copy, keep: int) -> str:
    """Keep the first episodes only."""
    if not keep:
        raise WriteError(f"{copy.root.name}: no episode can be read, so there is nothing to keep.")
    for file in copy.listed:
        lengths = file.column("length")[file.episodes < keep]
        path = copy.root / file.file
        if not len(lengths):
            with suppress(OSError):  # it may be missing, or a folder
                path.unlink()
        elif len(lengths) < len(file.episodes):
            if file.camera:
                _cut_video(path, lengths.sum(keepdims=True), copy.fps)
            else:
                _write_rows(path, _read_first(path, int(lengths.sum())), lengths)
    _write_tables(copy, {}, keep)
    return f"kept the {keep} episodes before the first that cannot be read"


def _read_first(path: Path, num_rows: int) -> pa.Table:
    """Return the first rows of a file, without reading row groups after them."""
    with pq.ParquetFile(path) as file:
        counts = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
        groups = int(np.searchsorted(np.cumsum(counts), num_rows)) + 1
        try:
            return file.read_row_groups(range(groups)).slice(0, num_rows)
        except (pa.ArrowException, OSError) as error:
            raise WriteError(f"{path.name}: its first {num_rows} rows are damaged too.") from error


def _compute_stats(root: Path, *, images: bool) -> str:
    """Compute the statistics of all rows; those of cameras too if wanted or missing."""
    dataset = open_dataset(DatasetLocation(root.name, root=root), SampleOptions())
    meta = LeRobotDatasetMetadata(root.name, root=root)
    recorded = {key: e for key, e in (meta.stats or {}).items() if key in meta.camera_keys}
    stats = compute_stats(dataset, images=images or len(recorded) < len(meta.camera_keys))
    write_stats(root / config.STATS_PATH, stats, recorded, meta.features)
    return "computed the statistics again"


def _write_tables(copy: _Copy, columns: Mapping[str, Any], keep: int) -> bool:
    """Write columns of the episode table for the first episodes, and count them in info.json.

    Returns whether info.json counted others.
    """
    at = 0
    for path in sorted((copy.root / "meta/episodes").glob("*/*.parquet")):
        table = pq.read_table(path)
        own = {name: values[at : at + table.num_rows] for name, values in columns.items()}
        kept = _set_columns(table, own).slice(0, max(0, keep - at))
        at += table.num_rows
        if kept.num_rows:
            pq.write_table(kept, path, **PARQUET_OPTIONS)
        else:
            path.unlink()
    before = (copy.root / config.INFO_PATH).read_text(encoding="utf-8-sig")
    info = json.loads(before)
    frames = int(copy.lengths[:keep].sum())
    info |= {"total_episodes": keep, "total_frames": frames, "total_tasks": len(copy.meta.tasks)}
    for name, text in split_texts(info.get("splits")).items():
        first, stop = (min(int(end), keep) for end in text.split(":"))
        info["splits"][name] = f"{first}:{stop}"
    text = json.dumps(info, indent=4, ensure_ascii=False)
    write_bytes_atomic(copy.root / config.INFO_PATH, text.encode())
    return bool(info != json.loads(before))


def _set_columns(table: pa.Table, columns: Mapping[str, Any]) -> pa.Table:
    for name, values in columns.items():
        at, field = table.schema.get_field_index(name), table.schema.field(name)
        table = table.set_column(at, field, pa.array(values).cast(field.type))
    return table


def _write_rows(path: Path, table: pa.Table, lengths: Int64s) -> None:
    """Write a row group for each episode."""
    with pq.ParquetWriter(path, table.schema, **PARQUET_OPTIONS) as writer:
        for stop, length in zip(np.cumsum(lengths).tolist(), lengths.tolist(), strict=True):
            writer.write_table(table.slice(stop - length, length), row_group_size=length)


_STEPS = (_salvage, _repair_places, _repair_spans, _repair_rows)


def repair_json(repaired: RepairReport) -> dict[str, Any]:
    """Return what was repaired and the answers about the copy, for JSON."""
    return {
        "path": str(repaired.path),
        "repairs": repaired.repairs,
        "episodes_left_out": list(repaired.left_out),
        "after": examination_json(repaired.examined),
    }


def repair_text(repaired: RepairReport, *, markdown: bool, width: int) -> str:
    """Return what was repaired, and the findings about the copy."""
    lines = [f"- {text}" for text in repaired.repairs]
    if repaired.left_out:
        lines.append(f"- left out the episodes {describe_episodes(repaired.left_out)}")
    lines = [f"Wrote {repaired.path}:", *(lines or ["- a plain copy: there was nothing to repair"])]
    filled = "\n".join(fill(line, width, subsequent_indent="  ") for line in lines)
    return f"{filled}\n\n{examination_text(repaired.examined, markdown=markdown, width=width)}"
