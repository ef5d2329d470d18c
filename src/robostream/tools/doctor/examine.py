# SPDX-License-Identifier: Apache-2.0
"""`examine_dataset`: reads what a level wants, each thing once, in parallel; asks the checks."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any

from robostream.assemble import DatasetLocation, OpenedDataset, SampleOptions, open_dataset
from robostream.errors import DatasetError, MissingExtraError, MissingRevisionError, StorageError
from robostream.meta import LeRobotDatasetMetadata, is_being_recorded, noting_contradictions
from robostream.progress import track
from robostream.storage import CancellingPool, FileOpener, as_location, list_refs, parse_repo_url
from robostream.tools.doctor import files, frames, rows, tables
from robostream.tools.doctor import findings as checks
from robostream.tools.doctor.content import explain_content
from robostream.tools.doctor.files import ListedFile

Read = Callable[[Any], Iterable[checks.Item]]

# In the order in which their modules define them.
_DEFINED = chain.from_iterable(vars(module).values() for module in (tables, files, rows, frames))
CHECKS = tuple(one for one in _DEFINED if isinstance(one, checks.Check))
# Of a remote dataset with more files, so many are read unless all are asked for.
SAMPLED_FILES = 500
_REMOTE_THREADS = 16
_STAGED = re.compile(r"images/.*/episode[-_](\d+)/")


@dataclass(frozen=True, slots=True)
class DoctorOptions:
    """What to read, and what to compare it with."""

    reads_rows: bool = False  # whether to read all rows
    frames: float = 0.0  # the share of episodes whose frames are decoded; 0 for none
    threads: int = 1  # threads that read a local dataset
    reads_all: bool = False  # whether to read all files of a remote dataset, however many
    chunk: int | None = None  # frames that a policy predicts at a time; None for the usual number
    # Episodes of selections, by name, that should share no recording.
    selections: Mapping[str, Sequence[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Examination:
    """The answers to all checks that were asked."""

    url: str
    meta: LeRobotDatasetMetadata | None  # None if it cannot be read
    read: Mapping[str, int]  # how many things of each kind were read
    findings: tuple[checks.Finding, ...]
    seconds: float

    @property
    def verdict(self) -> checks.Verdict:
        """The worst verdict."""
        return max((finding.verdict for finding in self.findings), default=checks.Verdict.OK)


def examine_dataset(location: DatasetLocation, options: DoctorOptions) -> Examination:
    """Return what is wrong with a dataset. Shows its progress on standard error."""
    began = time.perf_counter()
    with noting_contradictions() as contradictions:
        dataset = open_or_judge(location)
    if not isinstance(dataset, OpenedDataset):
        return Examination(location.repo_id, None, {}, dataset, time.perf_counter() - began)
    reader = _Reader(dataset, options)
    reader.read_tables(contradictions)
    reader.read_files()
    if options.reads_rows:
        reader.read_rows()
    if options.frames:
        reader.read_frames()
    levels = {"default", *(["rows"] * options.reads_rows), *(["frames"] * bool(options.frames))}
    findings = checks.collect([one for one in CHECKS if one.item.level in levels], reader.answers)
    seconds = time.perf_counter() - began
    return Examination(dataset.files.url, dataset.meta, reader.read, tuple(findings), seconds)


def open_or_judge(location: DatasetLocation) -> OpenedDataset | tuple[checks.Finding, ...]:
    """Return the opened dataset, or the answers of the checks if it cannot be opened."""
    try:
        return open_dataset(location, SampleOptions())
    except (DatasetError, MissingExtraError, OSError) as failure:
        asked = [one for one in CHECKS if one.item is tables.Opening]
        opening = tables.Opening(failure=_explain_opening(location, failure))
        return tuple(checks.collect(asked, checks.ask(asked, opening)))


class _Reader:
    """Reads a dataset level by level and keeps the answers of the checks."""

    def __init__(self, dataset: OpenedDataset, options: DoctorOptions) -> None:
        self._dataset, self._options = dataset, options
        self._files = files.DatasetFiles(dataset)
        self._listed = list(files.list_files(dataset.meta))
        self._readable: list[ListedFile] = []
        self.answers: checks.Answers = []
        self.read: dict[str, int] = {}

    def read_tables(self, contradictions: Sequence[Exception]) -> None:
        meta, repo = self._dataset.meta, parse_repo_url(self._dataset.files.url)
        refs = list_refs(repo[0], token=None) if repo else None
        self._ask(tables.Opening(version=meta.info.codebase_version, refs=refs))
        strays = list_strays(self._files.opener, self._listed)
        recording = is_being_recorded(meta.root)
        self._ask(tables.Tables(meta, contradictions, strays, recording, self._options.chunk))

    def read_files(self) -> None:
        chosen, unit = self._listed, "files"
        if self._dataset.files.is_remote and not self._options.reads_all:
            chosen = chosen[:: -(-len(chosen) // SAMPLED_FILES)]
        if len(chosen) < len(self._listed):
            unit = f"of {len(self._listed):,} files (--all reads them all)"

        def read(listed: ListedFile) -> list[checks.Item]:
            return [files.read_file(self._files.opener, listed)]

        self._readable = self._run(
            "files", unit, chosen, read, lambda item: getattr(item, "listed", None)
        )

    def read_rows(self) -> None:
        of_rows = [listed for listed in self._readable if not listed.camera]
        read = partial(rows.read_rows, self._files)
        summaries = self._run("rows", "files of rows", of_rows, read, rows.summarise)
        self._ask(rows.AllRows(self._dataset.meta, summaries, self._options.selections))

    def read_frames(self) -> None:
        """Read an even share of each camera's clips that can be read."""
        meta, chosen = self._dataset.meta, []
        for camera in meta.camera_keys:
            key = camera if camera in meta.video_keys else ""
            held = [listed.episodes for listed in self._readable if listed.camera == key]
            episodes = [int(episode) for some in held for episode in some]
            count = -int(-len(episodes) * self._options.frames // 1)
            chosen += [(camera, episodes[k * len(episodes) // count]) for k in range(count)]

        def read(clip: tuple[str, int]) -> list[checks.Item]:
            return [frames.read_clip(self._files, *clip)]

        clips = self._run("frames", "clips", chosen, read, lambda clip: clip)
        self._ask(frames.AllClips(meta, clips))

    def _ask(self, item: checks.Item) -> None:
        self.answers += checks.ask(CHECKS, item)

    def _run(
        self, label: str, unit: str, jobs: Sequence[Any], read: Read, keep: Callable[[Any], Any]
    ) -> list[Any]:
        """Read items in parallel, ask the checks about them, and return what is kept of them."""
        threads = _REMOTE_THREADS if self._dataset.files.is_remote else self._options.threads

        def examine(job: Any) -> list[tuple[checks.Answers, Any]]:
            return [(checks.ask(CHECKS, item), keep(item)) for item in read(job)]

        with CancellingPool(threads) as pool:
            done = track(pool.map(examine, jobs), f"doctor: {label}", len(jobs), unit)
            found = list(chain.from_iterable(done))
        self.read[unit] = len(jobs)
        self.answers += chain.from_iterable(answers for answers, _ in found)
        return [kept for _, kept in found if kept is not None]


def _explain_opening(location: DatasetLocation, failure: Exception) -> Exception:
    """Return why a dataset cannot be opened: what a local table is instead, existing revisions."""
    if isinstance(failure.__cause__, MissingRevisionError):
        with suppress(StorageError):
            name = location.repo_id.removeprefix("hf://datasets/").split("@")[0]
            refs = ", ".join(list_refs(name, token=None) or ())
            return DatasetError(f"{failure} Its branches and tags are {refs}.")
    root = as_location(location.root or location.repo_id)
    opener = FileOpener(root)
    for table in opener.list_files("meta", ".parquet") if root.local_root is not None else ():
        if problem := explain_content(opener, table, "parquet"):
            return DatasetError(f"{problem.what} {problem.cure}")
    return failure


def list_strays(opener: FileOpener, listed: Sequence[ListedFile]) -> Sequence[str]:
    """Return the files of rows, videos and staged images that belong to no episode.

    Old recorders leave the staged images of episodes that they saved.
    """
    found: set[str] = set()
    for folder, suffix in (("data", ".parquet"), ("videos", ".mp4"), ("images", "")):
        with suppress(StorageError):
            found.update(opener.list_files(folder, suffix))
    stop = max(int(file.episodes.max()) for file in listed) + 1
    saved = {file for file in found if (of := _STAGED.match(file)) and int(of[1]) < stop}
    return sorted(found - saved - {file.file for file in listed})


def examination_json(examined: Examination) -> dict[str, Any]:
    """Return all answers, for JSON."""
    return {
        "dataset": examined.url,
        "verdict": examined.verdict.name.lower(),
        "seconds": examined.seconds,
        "read": dict(examined.read),
        "findings": [checks.finding_json(finding) for finding in examined.findings],
    }


def examination_text(examined: Examination, *, markdown: bool, width: int) -> str:
    """Return the findings, the worst first, as text of a width or as Markdown."""
    headline = examined.url
    if examined.meta is not None:
        info = examined.meta.info
        read = ", ".join(f"{number:,} {what}" for what, number in examined.read.items())
        headline += (
            f": {info.codebase_version}, {len(examined.meta.episodes):,} episodes, "
            f"{info.total_frames:,} frames, {len(info.camera_keys)} cameras. Read in "
            f"{examined.seconds:.1f} s: {read}."
        )
    counts = sorted(Counter(f.verdict for f in examined.findings).items(), reverse=True)
    named = [f"{n} {v.name.lower()}{'s' if n > 1 and v else ''}" for v, n in counts]
    described = checks.describe_findings(examined.findings, examined.url, markdown, width)
    last = f"{len(examined.findings)} checks: {', '.join(named)}."
    return "\n\n".join([checks.fill(headline, width), *described, last])
