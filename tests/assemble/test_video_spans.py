# SPDX-License-Identifier: Apache-2.0
"""What the episode table says of video files, compared with the files and with itself."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import av
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from robostream import LeRobotDataset
from robostream.errors import FrameTimestampError, MetadataError
from tests.write.recording import FPS, TOP, number_in, quick_writer, record

LENGTHS = [7, 9, 7, 8]
Change = Callable[[list[float]], list[float]]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A dataset whose four episodes share a video file."""
    with quick_writer(tmp_path / "own") as writer:
        record(writer, LENGTHS)
    return tmp_path / "own"


def change(root: Path, **columns: Change) -> None:
    """Write columns of the episode table anew: from, to."""
    (path,) = (root / "meta/episodes").glob("*/*.parquet")
    table = pq.read_table(path)
    for name, new in columns.items():
        place = table.schema.get_field_index(f"videos/{TOP}/{name}_timestamp")
        values = pa.array(new(table[place].to_pylist()), pa.float64())
        table = table.set_column(place, table.schema.field(place), values)
    pq.write_table(table, path)


def moved(frames: int) -> Change:
    return lambda times_s: [time_s + frames / FPS for time_s in times_s]


def remux(root: Path, *, dropped: int | None = None, late: int = 0) -> None:
    """Write the video anew, without a frame and with no gap in its place, or all of it later."""
    (path,) = root.glob("videos/*/*/*.mp4")
    aside = path.with_suffix(".new.mp4")
    with av.open(str(path)) as old, av.open(str(aside), "w") as new:
        stream = new.add_stream_from_template(old.streams.video[0])
        packets = [packet for packet in old.demux(video=0) if packet.size]
        step = packets[1].pts - packets[0].pts
        for number, packet in enumerate(p for n, p in enumerate(packets) if n != dropped):
            packet.pts = packet.dts = (number + late) * step
            packet.stream = stream
            new.mux(packet)
    aside.replace(path)


def shown(root: Path, episode: int) -> list[int]:
    dataset = LeRobotDataset("x", root=root, episodes=[episode], return_uint8=True)
    return [number_in(item[TOP].permute(1, 2, 0).numpy()) for item in dataset]  # type: ignore[attr-defined]


@pytest.mark.parametrize("episode", range(4))
def test_a_video_as_it_was_recorded(root: Path, episode: int) -> None:
    """Each episode has the frames that were recorded for it."""
    first = sum(LENGTHS[:episode])
    assert shown(root, episode) == list(range(first, first + LENGTHS[episode]))


@pytest.mark.parametrize("damage", [{"dropped": 3}, {"late": 2}])
@pytest.mark.parametrize("episode", range(4))
def test_a_video_whose_frames_were_moved(root: Path, damage: dict[str, Any], episode: int) -> None:
    """No episode of it is read: those in its middle would find other frames at their times."""
    remux(root, **damage)

    with pytest.raises(FrameTimestampError, match=r"file-000\.mp4"):
        shown(root, episode)


def test_a_span_that_is_wrong_is_its_own_episodes_fault(root: Path) -> None:
    """Not the video's, and not the other episodes'."""
    change(root, to=lambda times_s: [*times_s[:-1], times_s[-1] + 0.2])

    assert shown(root, 1) == list(range(7, 16))
    with pytest.raises(MetadataError, match=r"episode 3.* 12 frames at 20 fps, want the 8"):
        shown(root, 3)


def test_a_table_whose_starts_are_all_late(root: Path) -> None:
    """It looks like the habit of some converters to write a last frame's time as the end."""
    change(root, **{"from": moved(1)})

    with pytest.raises(FrameTimestampError, match="Some were lost or moved"):
        shown(root, 1)


@pytest.mark.parametrize(
    ("new", "is_odd"),
    [
        pytest.param(moved(0), False, id="as recorded"),
        pytest.param(lambda times: [times[0], times[0], *times[2:]], True, id="shared"),
        pytest.param(lambda times: times[::-1], True, id="backwards"),
    ],
)
def test_episodes_that_do_not_follow_one_another_are_told(
    root: Path, new: Change, is_odd: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """They may be meant to share frames, so it is a warning."""
    change(root, **{"from": new})
    with caplog.at_level(logging.WARNING):
        LeRobotDataset("x", root=root)

    assert ("of its video file, before episode" in caplog.text) is is_odd
