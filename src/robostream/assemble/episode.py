# SPDX-License-Identifier: Apache-2.0
"""One episode at hand: its rows, and where its pictures lie in the video files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from robostream import config
from robostream.assemble.rows import EpisodeRows, RowReader
from robostream.assemble.spec import SampleSpec
from robostream.decode import FrameEngine
from robostream.meta import LeRobotDatasetMetadata


@dataclass(frozen=True, slots=True)
class VideoSpan:
    """Where one camera's pictures of an episode lie.

    Attributes:
        file: The video file.
        numbers: Each frame's number in it.
        within: The frames [first, stop) of the file that are the episode's.
    """

    file: str
    numbers: npt.NDArray[np.int64]
    within: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Episode:
    """An episode from which samples are cut."""

    rows: EpisodeRows
    spans: dict[str, VideoSpan]

    @property
    def length(self) -> int:
        """Number of frames."""
        return self.rows.length

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self.rows.nbytes + sum(span.numbers.nbytes for span in self.spans.values())


def load_episode(
    episode: int,
    *,
    meta: LeRobotDatasetMetadata,
    reader: RowReader,
    engine: FrameEngine,
    spec: SampleSpec,
) -> Episode:
    """Read an episode's rows and find each of its pictures, so that later steps cannot miss one."""
    rows = reader.read(episode)
    times_s = frame_times(rows.numbers, fps=meta.fps)
    spans = {}
    for key in spec.videos:
        start_s = float(meta.episodes[f"videos/{key}/from_timestamp"][episode])
        file = meta.get_video_file_path(episode, key).as_posix()
        numbers = engine.index(file).match(
            start_s + times_s,
            tolerance_s=spec.tolerance_s,
            where=f"{key}, episode {episode}",
        )
        spans[key] = VideoSpan(file, numbers, (int(numbers[0]), int(numbers[-1]) + 1))
    return Episode(rows, spans)


def index_folder(meta: LeRobotDatasetMetadata) -> Path | None:
    """Return where the indices of a remote dataset's videos are kept.

    None for a local one, whose files' own tables are read within a millisecond.
    """
    if meta.location.local_root is not None:
        return None
    return config.index_home() / meta.fingerprint


def frame_times(columns: dict[str, npt.NDArray[Any]], *, fps: float) -> npt.NDArray[np.float64]:
    """Return the seconds of each frame since its episode began, in 64 bits. Pure.

    The table stores them in 32 bits, which half an hour into an episode is coarser than the
    tolerance. Where the stored value is frame_index / fps rounded to 32 bits, the unrounded value
    is meant.
    """
    stored = columns["timestamp"]
    exact = columns["frame_index"].astype(np.float64) / fps
    return np.where(exact.astype(np.float32) == stored, exact, stored.astype(np.float64))
