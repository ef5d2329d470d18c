# SPDX-License-Identifier: Apache-2.0
"""One damaged episode does not keep the others out of the dataset."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from robostream.errors import WriteError
from robostream.write import DatasetWriter, resume_writer
from tests.write.recording import (
    TOP,
    check_dataset,
    check_videos,
    decode,
    frame,
    load,
    number_in,
    quick_writer,
    record,
    rows,
)

LENGTHS = [3, 1, 4, 2, 5, 2]
BAD = 2
# Numbers of the frames of the bad episode: no good frame has one of them.
BAD_FRAMES = range(2000, 2000 + LENGTHS[BAD])
NOT_UTF8 = "move \ud800"


def saved_recording(root: Path, *, bad: int = BAD, **more: Any) -> list[int]:
    """Save LENGTHS and stop without finalize(); returns the lengths of the good episodes."""
    writer = quick_writer(root, **more)
    number = 0
    for episode, length in enumerate(LENGTHS):
        if episode == bad:
            record(writer, [length], first=2000)
        else:
            number = record(writer, [length], first=number)
    stop(writer)
    return [length for episode, length in enumerate(LENGTHS) if episode != bad]


def stop(writer: DatasetWriter) -> None:
    """Close the writer as the end of the process would, after the background joins."""
    writer._resources.joiner.shutdown()
    writer._resources.lock.release()


def set_tasks(root: Path, episode: int, tasks: Sequence[str]) -> None:
    """Change the tasks in a record, also to texts that save_episode() would refuse."""
    path = root / f".recording/episode-{episode:06d}/episode.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "tasks": list(tasks)}))


@pytest.mark.parametrize("bad", [0, BAD, 5])
def test_a_task_that_is_not_utf8_costs_one_episode(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, bad: int
) -> None:
    """All others are published; the bad one is kept complete, and the log says where."""
    root = tmp_path / "a"
    good = saved_recording(root, bad=bad)
    set_tasks(root, bad, [NOT_UTF8])
    with caplog.at_level(logging.WARNING):
        resume_writer(root).finalize()
    kept = root / f".bad-episodes/episode-{bad:06d}"

    check_dataset(root, good)
    assert load(root).features[TOP]["info"]["video.codec"] == "h264"
    assert f"saved episode {bad} is damaged" in caplog.text
    assert str(kept) in caplog.text
    assert "UTF-8" in (kept / "why_bad.txt").read_text()
    assert pq.read_metadata(kept / "rows.parquet").num_rows == LENGTHS[bad]
    assert [number_in(image) for _, image in decode(kept / f"{TOP}.mp4")] == [
        2000 + k for k in range(LENGTHS[bad])
    ]


@pytest.mark.parametrize(
    ("data_mb", "video_mb", "joined"),
    [(0.001, 0.001, True), (0.003, 0.006, True), (0.003, 0.01, True), (200, 200, False)],
    ids=["own files", "end of a file", "middle of a file", "not joined"],
)
def test_joined_files_with_a_damaged_episode_are_split(
    tmp_path: Path, data_mb: float, video_mb: float, joined: bool
) -> None:
    """An episode that turns out damaged after it was joined with others is removed again."""
    root = tmp_path / "a"
    good = saved_recording(root, data_files_size_in_mb=data_mb, video_files_size_in_mb=video_mb)
    set_tasks(root, BAD, [NOT_UTF8])
    folder = root / f".recording/episode-{BAD:06d}"
    parts = [name for name in ("rows.parquet", f"{TOP}.mp4") if (folder / name).exists()]
    with resume_writer(root) as writer:
        record(writer, [2], first=sum(good))
    kept = root / f".bad-episodes/episode-{BAD:06d}"
    states = pq.read_table(kept / "rows.parquet")["observation.state"].to_pylist()

    assert parts == ([] if joined else ["rows.parquet", f"{TOP}.mp4"])
    check_dataset(root, [*good, 2])
    assert [state[0] for state in states] == list(BAD_FRAMES)
    assert [number_in(image) for _, image in decode(kept / f"{TOP}.mp4")] == list(BAD_FRAMES)


def test_tasks_and_statistics_are_those_of_the_episodes_that_are_left(tmp_path: Path) -> None:
    """Tasks that only the bad episode has are gone; later ones that it had first stay right."""
    tasks = [["pour"], ["pour", "taste", "stir"], ["stir", "wait", "pour", "stir"]]
    roots = [tmp_path / "a", tmp_path / "without"]
    for root, episodes in zip(roots, [tasks, [tasks[0], tasks[2]]], strict=True):
        writer = quick_writer(root)
        for episode in episodes:
            for number, task in enumerate(episode):
                writer.add_frame(frame(number, task=task))
            writer.save_episode()
        stop(writer)
    set_tasks(roots[0], 1, ["pour", "taste \ud800", "stir"])
    for root in roots:
        resume_writer(root).finalize()
    found, wanted = (
        [
            (root / "meta/stats.json").read_text(),
            (root / "meta/info.json").read_text(),
            load(root).episodes["tasks"],
            list(load(root).tasks),
            rows(root).to_pylist(),
            pq.read_table(root / "meta/episodes/chunk-000/file-000.parquet").to_pylist(),
        ]
        for root in roots
    )

    assert found == wanted
    assert found[3] == ["pour", "stir", "wait"]


def edit_place(record: Path, chunk: str) -> None:
    entry = json.loads(record.read_text())
    entry["data"]["chunk"] = chunk
    record.write_text(json.dumps(entry))


def truncate(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def damage_pages(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[4:200] = bytes(196)
    path.write_bytes(content)


DAMAGES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "record missing": (lambda f: (f / "episode.json").unlink(), "episode.json is missing"),
    "record empty": (lambda f: (f / "episode.json").write_text(""), "episode.json is damaged"),
    "record of nothing": (lambda f: (f / "episode.json").write_text("[1]"), "is damaged"),
    "record lacks a field": (lambda f: (f / "episode.json").write_text("{}"), "is damaged"),
    "record of another place": (
        lambda f: edit_place(f / "episode.json", "../../../elsewhere"),
        "want whole numbers of a chunk and a file",
    ),
    "rows missing": (lambda f: (f / "rows.parquet").unlink(), "rows.parquet: the file is missing"),
    "rows short": (lambda f: truncate(f / "rows.parquet"), "rows.parquet: not a complete Parquet"),
    "rows overwritten": (
        lambda f: damage_pages(f / "rows.parquet"),
        "rows.parquet: not a complete",
    ),
    "video missing": (lambda f: (f / f"{TOP}.mp4").unlink(), f"{TOP}.mp4: the file is missing"),
    "video short": (lambda f: truncate(f / f"{TOP}.mp4"), f"{TOP}.mp4: not a complete MP4"),
    "video empty": (lambda f: (f / f"{TOP}.mp4").write_text(""), f"{TOP}.mp4: not a complete MP4"),
}


@pytest.mark.parametrize(("bad", "damage"), [(0, "record missing"), *((BAD, d) for d in DAMAGES)])
def test_a_damaged_episode_costs_no_other(tmp_path: Path, damage: str, bad: int) -> None:
    """Whichever part of an episode cannot be read, the others come into the dataset."""
    harm, reason = DAMAGES[damage]
    root = tmp_path / "a"
    good = saved_recording(root, bad=bad)
    harm(root / f".recording/episode-{bad:06d}")
    left = sorted(p.name for p in (root / f".recording/episode-{bad:06d}").iterdir())
    resume_writer(root).finalize()
    kept = root / f".bad-episodes/episode-{bad:06d}"

    check_dataset(root, good)
    assert load(root).features[TOP]["info"]["video.codec"] == "h264"
    assert reason in (kept / "why_bad.txt").read_text()
    assert sorted(p.name for p in kept.iterdir()) == sorted([*left, "why_bad.txt"])


def test_several_bad_episodes_are_kept_under_names_of_their_own(tmp_path: Path) -> None:
    """They have different names, also if two recordings have a bad episode of the same number."""
    root = tmp_path / "a"
    writer = quick_writer(root)
    record(writer, [2, 3, 1])
    stop(writer)
    for episode in range(3):
        (root / f".recording/episode-{episode:06d}/episode.json").unlink()
    writer = resume_writer(root)
    record(writer, [4, 2])
    stop(writer)
    (root / ".recording/episode-000001/rows.parquet").unlink()
    resume_writer(root).finalize()

    check_dataset(root, [4])
    assert sorted(p.name for p in (root / ".bad-episodes").iterdir()) == [
        "episode-000000",
        "episode-000001",
        "episode-000001-2",
        "episode-000002",
    ]


def test_a_dataset_that_has_episodes_grows_by_the_good_ones(tmp_path: Path) -> None:
    """Numbers continue those of the dataset, in rows, table and statistics."""
    root = tmp_path / "a"
    with quick_writer(root) as writer:
        number = record(writer, [5, 3])
    writer = resume_writer(root)
    record(writer, [4], first=2000)
    record(writer, [2, 6], first=number)
    stop(writer)
    set_tasks(root, 2, [NOT_UTF8])
    resume_writer(root).finalize()
    stats = load(root).stats
    assert stats is not None

    check_dataset(root, [5, 3, 2, 6])
    assert (stats["index"]["min"].item(), stats["index"]["max"].item()) == (0, 15)
    np.testing.assert_allclose(stats["episode_index"]["mean"], (3 + 2 * 2 + 3 * 6) / 16)


def test_a_record_that_is_lost_after_joining_raises(tmp_path: Path) -> None:
    """Then the episode's rows and frames cannot be separated from others', so nothing changes."""
    root = tmp_path / "a"
    saved_recording(root, video_files_size_in_mb=0.001, data_files_size_in_mb=0.001)
    path = root / f".recording/episode-{BAD:06d}/episode.json"
    content = path.read_text()
    path.write_text("")
    with pytest.raises(WriteError, match=r"Bring episode\.json back"):
        resume_writer(root)
    path.write_text(content)
    resume_writer(root).finalize()

    assert load(root).episodes["length"].tolist() == LENGTHS


def test_a_folder_that_is_gone_is_no_bad_episode(tmp_path: Path) -> None:
    """A gap in the numbers is an error, so that the missing folder can be brought back."""
    root = tmp_path / "a"
    saved_recording(root)
    folder = root / f".recording/episode-{BAD:06d}"
    folder.rename(tmp_path / "elsewhere")
    with pytest.raises(WriteError, match=r"without a gap, found \[0, 1, 3, 4, 5\]"):
        resume_writer(root)
    (tmp_path / "elsewhere").rename(folder)
    resume_writer(root).finalize()

    assert load(root).episodes["length"].tolist() == LENGTHS


def test_depth_and_several_cameras_are_taken_apart_too(tmp_path: Path) -> None:
    """Each camera's files are cut where its own sizes say; all stay in step."""
    names = ["height", "width", "channels"]
    wrist, depth = "observation.images.wrist", "observation.images.depth"
    features = {
        TOP: {"dtype": "video", "shape": (64, 96, 3), "names": names},
        wrist: {"dtype": "video", "shape": (64, 96, 3), "names": names},
        depth: {"dtype": "video", "shape": (64, 96, 1), "names": names},
    }
    root = tmp_path / "a"
    writer = quick_writer(root, features, video_files_size_in_mb=0.02, data_files_size_in_mb=0.01)
    number = 0
    for episode, length in enumerate([3, 4, 2, 5, 3]):
        for k in range(length):
            shown = 2000 + k if episode == 1 else number + k
            image = frame(shown)[TOP]
            distances = np.full((64, 96, 1), 500 + 10 * (shown % 100), np.uint16)
            writer.add_frame({TOP: image, wrist: image, depth: distances, "task": "move"})
        number += 0 if episode == 1 else length
        writer.save_episode()
    stop(writer)
    set_tasks(root, 1, [NOT_UTF8])
    resume_writer(root).finalize()
    meta = load(root)

    assert meta.episodes["length"].tolist() == [3, 2, 5, 3]
    check_videos(root, TOP)
    check_videos(root, wrist)
    assert meta.features[depth]["info"]["depth_unit"] == "mm"
    assert len(decode(root / meta.get_video_file_path(0, depth), "gray12le")) >= 3
