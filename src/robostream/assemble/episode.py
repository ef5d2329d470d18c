# SPDX-License-Identifier: Apache-2.0
"""Where an episode's pictures lie in the video files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from robostream import config
from robostream.decode import FrameIndex
from robostream.meta import LeRobotDatasetMetadata


def picture_numbers(
    meta: LeRobotDatasetMetadata, index: FrameIndex, episode: int, key: str, *, tolerance_s: float
) -> npt.NDArray[np.int64]:
    """Return the number in its video file of every picture of an episode, or raise.

    Frame f is shown f / fps seconds after the episode begins in the file. (Whoever reads the rows
    checks that the table says the same.)
    """
    start_s = float(meta.episodes[f"videos/{key}/from_timestamp"][episode])
    times_s = np.arange(int(meta.episodes["length"][episode])) / meta.fps
    where = f"{key}, episode {episode}"
    return index.match(start_s + times_s, tolerance_s=tolerance_s, where=where)


def index_folder(meta: LeRobotDatasetMetadata) -> Path | None:
    """Return where the indices of a remote dataset's videos are kept.

    None for a local one, whose files' own tables are read within a millisecond.
    """
    if meta.location.local_root is not None:
        return None
    return config.index_home() / meta.fingerprint
