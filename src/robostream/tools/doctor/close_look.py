# SPDX-License-Identifier: Apache-2.0
"""`look_closely`: the doctor's checks of one episode, with all that they saw of its videos."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import av
import numpy as np

from robostream.assemble import DatasetLocation, OpenedDataset
from robostream.decode import PyavBackend, VideoFile, VideoSource, plan_runs
from robostream.device import open_on_gpu
from robostream.errors import DatasetError, SelectionError, StorageError
from robostream.storage import FileOpener
from robostream.tools.doctor import files, frames, rows, tables
from robostream.tools.doctor import findings as checks
from robostream.tools.doctor.content import read_head, recognise
from robostream.tools.doctor.examine import CHECKS, open_or_judge
from robostream.tools.doctor.files import ListedFile, SampleTable
from robostream.tools.machine import AV1_CARDS, advise_device, check_gpu

_FIRST_BYTES = 16
_LABEL = 13  # characters
# Facts by name, in lines by label.
Facts = dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class GpuFailure(checks.Item):
    """Why the GPU does not decode a video that it must decode."""

    level: ClassVar[str] = "frames"
    reason: str


@checks.check(
    why="training with video_decode_device='cuda' fails",
    cure="Decode on the CPU, or make a copy: robostream recode ROOT COPY --codec h264",
)
def gpu(failure: GpuFailure) -> checks.Remarks:
    """The GPU decodes the videos, if it is asked to."""
    yield checks.error(failure.reason)


@dataclass(frozen=True, slots=True)
class CloseLook:
    """Everything about one episode: facts by subject, unless it cannot be opened, and findings."""

    url: str
    episode: int
    facts: dict[str, Facts]
    findings: tuple[checks.Finding, ...]

    @property
    def decodes(self) -> bool:
        """Whether nothing prevents the episode from being loaded."""
        return all(finding.verdict < checks.Verdict.ERROR for finding in self.findings)


def look_closely(
    location: DatasetLocation, *, episode: int, cameras: Sequence[str] | None, device: str
) -> CloseLook:
    """Return all that can be seen of an episode, by some cameras (None: all).

    With the device "cuda", a video that the GPU cannot decode is an error. Raises SelectionError if
    there is no such episode or camera.
    """
    dataset = open_or_judge(location)
    if not isinstance(dataset, OpenedDataset):
        return CloseLook(str(location.root or location.repo_id), episode, {}, dataset)
    meta, known, count = dataset.meta, dataset.meta.camera_keys, len(dataset.meta.episodes)
    if not 0 <= episode < count:
        raise SelectionError(
            f"there is no episode {episode}; {meta.repo_id} has {count}, from 0 on"
        )
    if unknown := [key for key in cameras or () if key not in known]:
        listed = ", ".join(known) or "none"
        raise SelectionError(f"there is no camera {', '.join(unknown)}; the cameras are {listed}")
    look = _Look(dataset, episode, is_gpu_wanted=device == "cuda")
    facts = {"dataset": look.read_rows()}
    facts |= {key: look.read_camera(key) for key in (known if cameras is None else cameras)}
    return CloseLook(dataset.files.url, episode, facts, tuple(look.findings()))


class _Look:
    """Reads the files of one episode and keeps the answers of the checks."""

    def __init__(self, dataset: OpenedDataset, episode: int, *, is_gpu_wanted: bool) -> None:
        self._episode, self._is_gpu_wanted = episode, is_gpu_wanted
        self._files = files.DatasetFiles(dataset)
        listed = files.list_files(dataset.meta)
        self._listed = {file.camera: file for file in listed if episode in file.episodes}
        self._answers: checks.Answers = []

    def findings(self) -> list[checks.Finding]:
        """Return the answers that concern the episode."""
        own = [a for a in self._answers if not a[1].episodes or self._episode in a[1].episodes]
        asked = [one for one in CHECKS if one.item not in (tables.Opening, tables.Tables)]
        return checks.collect([*asked, gpu], own)

    def read_rows(self) -> Facts:
        """Return the facts about the dataset and the episode's rows."""
        meta, listed = self._files.meta, self._listed[""]
        if self._ask(files.read_file(self._files.opener, listed)):
            own = replace(listed, episodes=np.array([self._episode]))
            for content in rows.read_rows(self._files, own):
                self._ask(content)
        length = int(meta.episodes["length"][self._episode])
        return {
            "version": {"": meta.info.codebase_version, "revision": meta.revision or "none"},
            "episode": {"": self._episode, "of": len(meta.episodes)},
            "frames": {"": length, "of": meta.total_frames, "fps": meta.fps},
            "rows": _describe_file(self._files.opener, listed.file),
        }

    def read_camera(self, camera: str) -> Facts:
        """Return the facts about a camera's file, stream and frames."""
        listed = self._listed.get(camera, self._listed[""])
        facts = {"file": _describe_file(self._files.opener, listed.file)}
        item = files.read_file(self._files.opener, listed)
        if not self._ask(item):
            return facts
        if isinstance(item, SampleTable):
            facts |= _describe_video(item, self._episode)
        began = time.perf_counter()
        clip = frames.read_clip(self._files, camera, self._episode)
        rate = clip.num_frames / max(time.perf_counter() - began, 1e-9)
        self._ask(clip)
        mean = [] if clip.mean is None else clip.mean.round(3).tolist()
        facts["images"] = {"mean": mean, "black": clip.num_black, "still": clip.longest_still}
        facts["decoding"] = {"images": clip.num_frames, "images/s on one thread": round(rate)}
        if isinstance(item, SampleTable):
            facts["on the GPU"] = {"": self._try_gpu(item, rate)}
        return facts

    def _ask(self, item: checks.Item) -> bool:
        """Ask all checks about an item; return whether its file can be read."""
        self._answers += checks.ask((*CHECKS, gpu), item)
        return not isinstance(item, ListedFile)

    def _try_gpu(self, item: SampleTable, images_per_s: float) -> str:
        """Return whether the GPU decodes a frame of a video, and where to decode it."""
        if reason := check_gpu().obstacle or _refuse_on_gpu(item, self._files.opener):
            if self._is_gpu_wanted:
                self._ask(GpuFailure(reason))
            return f"no: {reason}"
        from robostream.loader import share_of_cores  # imports torch, which other tools do not need

        config, gop_frames = item.index.configs[0], float(np.median(item.index.gop_lengths()))
        size = config.width, config.height
        return advise_device(images_per_s, share_of_cores(1), *size, gop_frames)


def _refuse_on_gpu(item: SampleTable, opener: FileOpener) -> str:
    """Return why the GPU does not decode the first frame of a video; empty if it does."""
    file, index = item.listed.file, item.index
    video = VideoFile(file, VideoSource(opener.open(file)), index)
    backend = PyavBackend(partial(open_on_gpu, device="cuda:0"), lambda frame, _: frame.format.name)
    codec = av.Codec(index.configs[0].decoder, "r").canonical_name
    try:
        run = plan_runs(index, item.numbers[:1])[0]
        shown = [kind for _, _, kind in backend.decode([(video, run)]) if kind is not None]
    except (av.FFmpegError, DatasetError, StorageError) as failure:
        cards = f". {AV1_CARDS}" if codec == "av1" else ""
        return f"the GPU cannot decode this {codec} video ({failure}){cards}"
    return "" if shown else f"the GPU returned 0 frames of this {codec} video"


def _describe_file(opener: FileOpener, file: str) -> dict[str, Any]:
    try:
        head, size = read_head(opener.open(file))
    except StorageError:
        return {"": file, "is": "not found, or not readable"}
    letters = "".join(chr(byte) if 32 < byte < 127 else "." for byte in head[:_FIRST_BYTES])
    first = f"{head[:_FIRST_BYTES].hex(' ', 4)} {letters}"
    return {"": file, "bytes": size, "first bytes": first, "is": recognise(head, size)[1]}


def _describe_video(item: SampleTable, episode: int) -> Facts:
    index, table = item.index, item.listed.meta.episodes
    config, times_s, gops = index.configs[0], index.times_s(), index.gop_lengths()
    seconds = float(times_s[-1] - times_s[0]) * index.num_frames / max(index.num_frames - 1, 1)
    bits = 8 * float(index.sizes.sum(dtype=np.int64))
    is_own = item.listed.frames()[0] == episode
    first, last = item.numbers[is_own][[0, -1]].tolist()
    span = f"videos/{item.listed.camera}"
    span_s = (table[f"{span}/{end}_timestamp"][episode] for end in ("from", "to"))
    return {
        "video": {
            "codec": av.Codec(config.decoder, "r").canonical_name,
            "decoder": config.decoder,
            "pixels": files.describe_pixels(config.extradata, config.decoder) or "unknown",
            "size": f"{config.width}x{config.height}",
            "frames": index.num_frames,
            "kbit/s": round(bits / seconds / 1e3) if seconds else 0,
            "index": "at the end" if files.is_index_last(index) else "at the front",
        },
        "key frames": {
            "every": f"{np.median(gops):g} frames",
            "longest": int(gops.max()),
            "B-frames": "no" if index.packets is None else "yes",
            "open GOPs": files.count_open_gops(index),
        },
        "span": {
            "frames": f"{first} to {last} of the file",
            "seconds": " to ".join(f"{end_s:.3f}" for end_s in span_s),
            "largest error": f"{1e3 * item.errors_s[is_own].max():.3f} ms",
            "starts at a key frame": "yes" if first in index.start_frames else "no",
        },
    }


def look_json(look: CloseLook) -> dict[str, Any]:
    """Return all facts about an episode and the answers of the checks, for JSON."""
    findings = [checks.finding_json(finding) for finding in look.findings]
    facts = {"dataset": look.url, "episode": look.episode, "decodes": look.decodes}
    return facts | {"facts": look.facts, "findings": findings}


def look_text(look: CloseLook, *, width: int) -> str:
    """Return all facts about an episode, then what is wrong, as text of a width."""
    parts = [look.url]
    for subject, facts in look.facts.items():
        lines = [subject]
        for name, values in facts.items():
            text = ", ".join(f"{key} {value}".strip() for key, value in values.items())
            first, later = f"  {name:{_LABEL}}", " " * (_LABEL + 2)
            lines.append(checks.fill(text, width, initial_indent=first, subsequent_indent=later))
        parts.append("\n".join(lines))
    verdict = f"OK: episode {look.episode} decodes." if look.decodes else "FAILED: see the errors."
    parts += checks.describe_findings(look.findings, look.url, False, width)
    return "\n\n".join([*parts, verdict])
