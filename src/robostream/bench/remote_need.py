# SPDX-License-Identifier: Apache-2.0
"""What an epoch cannot do without: the bytes of its frames, and the least requests for them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from robostream.decode import build_index
from robostream.meta import LeRobotDatasetMetadata
from robostream.plan import EpochPlan
from robostream.storage import LocalSource
from robostream.testing import Exchange


@dataclass(frozen=True, slots=True)
class Need:
    """What all frames of a dataset need.

    Attributes:
        frames: How many there are.
        episodes: In how many episodes.
        cameras: Cameras stored as video.
        video_bytes: The packets of all pictures, as the sample tables of the files say.
        row_bytes: The row groups of all frames, as the files' footers say.
    """

    frames: int
    episodes: int
    cameras: int
    video_bytes: int
    row_bytes: int

    @property
    def nbytes(self) -> int:
        """All bytes needed."""
        return self.video_bytes + self.row_bytes


@dataclass(frozen=True, slots=True)
class Traffic:
    """What was asked of a server for some samples.

    Attributes:
        video_requests: Requests for video files, whatever was answered.
        row_requests: Requests for data files.
        meta_requests: Requests for everything else.
        fetched_bytes: Bytes of video and data files that were sent.
        meta_bytes: Bytes of everything else.
    """

    video_requests: int
    row_requests: int
    meta_requests: int
    fetched_bytes: int
    meta_bytes: int


def measure_need(root: Path) -> Need:
    """Return what all frames of a local dataset need."""
    meta = LeRobotDatasetMetadata("bench/remote", root=root)
    indices = [build_index(LocalSource(path)) for path in root.glob("videos/**/*.mp4")]
    return Need(
        frames=meta.total_frames,
        episodes=meta.total_episodes,
        cameras=len(meta.video_keys),
        video_bytes=sum(int(index.sizes.sum(dtype=np.int64)) for index in indices),
        row_bytes=sum(map(_group_bytes, root.glob("data/**/*.parquet"))),
    )


def _group_bytes(path: Path) -> int:
    footer = pq.read_metadata(path)
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    columns = [group.column(c) for group in groups for c in range(group.num_columns)]
    return sum(column.total_compressed_size for column in columns)


def count_cuts(plan: EpochPlan) -> int:
    """Return how often an epoch's order cuts through an episode, so that it is read in parts. Pure.

    Lanes begin and end inside episodes, and each is entered somewhere on its circle.
    """
    places: set[int] = set()
    for number in plan.lane_spans()[0].tolist():
        lane, start = plan.lane(number)
        places |= {start, start + lane.entry % lane.length}
    return len(places - set(plan.line.starts.tolist()))


def sum_traffic(exchanges: Iterable[Exchange]) -> Traffic:
    """Return what requests add up to. Pure."""
    requests = {"videos": 0, "data": 0, "meta": 0}
    sent = {"videos": 0, "data": 0, "meta": 0}
    for exchange in exchanges:
        folder = exchange.path.strip("/").split("/")[0]
        kind = folder if folder in requests else "meta"
        requests[kind] += 1
        sent[kind] += exchange.sent_bytes
    fetched = sent["videos"] + sent["data"]
    return Traffic(requests["videos"], requests["data"], requests["meta"], fetched, sent["meta"])
