# SPDX-License-Identifier: Apache-2.0
"""Record in child processes, kill them, resume, and check that every saved episode is there.

    python -m tests.write.killed_recordings random FOLDER ROUNDS
    python -m tests.write.killed_recordings steps FOLDER
    python -m tests.write.killed_recordings bad FOLDER

Everything is imported once, then each recording and each resume runs in a forked process, so that
dozens of them take seconds. Prints one line per kill; exits 1 at the first lost episode.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import NoReturn

import av
import pyarrow.parquet as pq

from robostream.write import DatasetWriter, resume_writer
from tests.forked import die_before_step, in_child
from tests.write.recording import check_dataset, load, quick_writer, record

SMALL = {"video_files_size_in_mb": 0.006, "data_files_size_in_mb": 0.006}
BAD = 2


def length_of(episode: int) -> int:
    return 1 + episode * 5 % 8


def save_one(writer: DatasetWriter, reports: int) -> None:
    record(writer, [length_of(writer.num_episodes)], first=writer.num_frames)
    os.write(reports, b".")


def open_writer(root: Path) -> DatasetWriter:
    if (root / "meta/info.json").exists():
        return resume_writer(root)
    return quick_writer(root, **SMALL)


def record_forever(root: Path, reports: int) -> NoReturn:
    """Sessions of three episodes, one after the other."""
    while True:
        writer = open_writer(root)
        for _ in range(3):
            save_one(writer, reports)
        writer.finalize()


def record_until_step(root: Path, reports: int, step: int) -> None:
    """Two sessions, unless the process dies before its `step`-th change of a name on disk."""
    die_before_step(step)
    for sessions in (2, 1):
        writer = open_writer(root)
        for _ in range(sessions):
            save_one(writer, reports)
        writer.finalize()


def check_after_kill(root: Path, reported: int, kills: int) -> None:
    """Files in the dataset are whole; after a resume every episode that was reported is there.

    Each kill may have hit between an episode's saving and its report.
    """
    for path in (root / "data").rglob("*.parquet"):
        pq.ParquetFile(path).read()
    for path in (root / "videos").rglob("*.mp4"):
        with av.open(str(path)) as container:
            assert sum(1 for _ in container.decode(video=0)) == container.streams.video[0].frames
    if not (root / "meta/info.json").exists():
        assert reported == 0
        return
    resume_writer(root).finalize()
    found = load(root).total_episodes
    assert reported <= found <= reported + kills, (reported, found)
    if found:
        check_dataset(root, [length_of(e) for e in range(found)])


def checked(root: Path, reported: int, kills: int = 1) -> int:
    """Check in a child and return the episodes found."""
    _, status = os.waitpid(in_child(lambda: check_after_kill(root, reported, kills)), 0)
    if status:
        sys.exit(f"{root}: {reported} episodes were reported saved; see the error above")
    # Read without pyarrow, so that this process never has threads, which a fork would lose.
    info = root / "meta/info.json"
    return int(json.loads(info.read_text())["total_episodes"]) if info.exists() else 0


def kill_at_random(folder: Path, rounds: int) -> None:
    root = folder / "dataset"
    found = 0
    for kill in range(rounds):
        reading, reports = os.pipe()
        child = in_child(lambda fd=reports: record_forever(root, fd))
        os.close(reports)
        time.sleep(random.uniform(0.01, 0.5))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        with os.fdopen(reading, "rb") as pipe:
            found += len(pipe.read())
        reported = found
        # Every second time the next recording finds the remains, and may be killed in clearing up.
        if kill % 2:
            found = checked(root, reported, kills=2)
        print(f"kill {kill}: {reported} reported, {found} found", flush=True)


def kill_at_every_step(folder: Path) -> None:
    step, killed = 0, True
    while killed:
        step += 1
        root = folder / f"step{step}"
        reading, reports = os.pipe()
        child = in_child(lambda fd=reports, r=root, s=step: record_until_step(r, fd, s))
        os.close(reports)
        _, status = os.waitpid(child, 0)
        killed = os.WIFSIGNALED(status)
        assert killed or status == 0, "the recording failed"
        with os.fdopen(reading, "rb") as pipe:
            reported = len(pipe.read())
        found = checked(root, reported)
        print(f"step {step}: {reported} reported, {found} found", flush=True)
        shutil.rmtree(root, ignore_errors=True)


def save_with_a_bad_one(root: Path) -> None:
    """Save six episodes, some joined already, and damage the record of the third."""
    writer = quick_writer(root, data_files_size_in_mb=0.003, video_files_size_in_mb=0.01)
    number = 0
    for episode in range(6):
        length = length_of(episode)
        if episode == BAD:
            record(writer, [length], first=2000)
        else:
            number = record(writer, [length], first=number)
    writer._resources.joiner.shutdown()
    path = root / f".recording/episode-{BAD:06d}/episode.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "tasks": ["\ud800"]}))


def resume_until_step(root: Path, step: int) -> None:
    die_before_step(step)
    resume_writer(root).finalize()


def check_excluded(root: Path) -> None:
    """After another resume the good episodes are in the dataset and the bad one is kept."""
    resume_writer(root).finalize()
    check_dataset(root, [length_of(episode) for episode in range(6) if episode != BAD])
    kept = list((root / ".bad-episodes").iterdir())
    assert [folder.name for folder in kept] == [f"episode-{BAD:06d}"]
    states = pq.read_table(kept[0] / "rows.parquet")["observation.state"].to_pylist()
    assert [state[0] for state in states] == [2000 + k for k in range(length_of(BAD))]


def kill_while_excluding(folder: Path) -> None:
    saved = folder / "saved"
    _, status = os.waitpid(in_child(lambda: save_with_a_bad_one(saved)), 0)
    assert status == 0
    step, killed = 0, True
    while killed:
        step += 1
        root = folder / f"step{step}"
        shutil.copytree(saved, root)
        _, status = os.waitpid(in_child(lambda r=root, s=step: resume_until_step(r, s)), 0)
        killed = os.WIFSIGNALED(status)
        assert killed or status == 0, "resuming failed"
        _, status = os.waitpid(in_child(lambda r=root: check_excluded(r)), 0)
        if status:
            sys.exit(f"{root}: killed before step {step}; see the error above")
        print(f"step {step}", flush=True)
        shutil.rmtree(root)


if __name__ == "__main__":
    if sys.argv[1] == "random":
        kill_at_random(Path(sys.argv[2]), int(sys.argv[3]))
    elif sys.argv[1] == "steps":
        kill_at_every_step(Path(sys.argv[2]))
    else:
        kill_while_excluding(Path(sys.argv[2]))
