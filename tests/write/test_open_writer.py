# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import gc
import logging
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from robostream.errors import WriteError
from robostream.write import resume_writer, start
from robostream.write import writer as writer_module
from robostream.write.staging import WriterLock
from tests.write.recording import check_dataset, frame, quick_writer, record

HOLD = """
import sys
from pathlib import Path
from robostream.write.staging import WriterLock
lock = WriterLock(Path(sys.argv[1]))
print(lock.is_mine, flush=True)
sys.stdin.read()
"""


def test_a_second_writer_in_one_process_raises(tmp_path: Path) -> None:
    """The message says that this process has the lock; after finalize() it is free."""
    first = quick_writer(tmp_path / "a")
    with pytest.raises(WriteError, match=rf"this process \(process {os.getpid()} on .*already"):
        resume_writer(tmp_path / "a")
    first.finalize()
    resume_writer(tmp_path / "a").finalize()

    assert not (tmp_path / "a/.recording").exists()


def test_a_writer_of_another_process_is_named(tmp_path: Path) -> None:
    """The message names process and machine of the lock, which is free when that process ends."""
    quick_writer(tmp_path / "a").finalize()
    command = [sys.executable, "-c", HOLD, str(tmp_path / "a/.recording")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"True\n"
        with pytest.raises(WriteError, match=rf"another writer \(process {holder.pid} on "):
            resume_writer(tmp_path / "a")
        holder.kill()
    resume_writer(tmp_path / "a").finalize()

    assert not (tmp_path / "a/.recording").exists()


def test_a_dropped_writer_gives_the_dataset_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Without finalize() the lock goes with the writer, and its threads end; the log says it."""
    before = set(threading.enumerate())
    writer = quick_writer(tmp_path / "a", video_files_size_in_mb=0.001)
    number = record(writer, [2, 3])
    writer.add_frame(frame(number))
    with caplog.at_level(logging.WARNING):
        writer._resources.joiner.submit(int).result()  # all joins are done
        del writer
        gc.collect()
    with resume_writer(tmp_path / "a") as second:
        record(second, [1], first=number)
    for thread in set(threading.enumerate()) - before:
        thread.join()  # a hang fails by the suite's time limit

    check_dataset(tmp_path / "a", [2, 3, 1])
    assert "dropped without finalize()" in caplog.text
    assert "1 frames were not saved" in caplog.text
    assert set(threading.enumerate()) <= before


def test_the_lock_outlives_a_join_that_still_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer dropped while a file is joined keeps the lock until the join is done."""
    begun, go_on = threading.Event(), threading.Event()
    run_join = writer_module.run_join

    def slow_job(*arguments: object) -> None:
        begun.set()
        go_on.wait()
        run_join(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(writer_module, "run_join", slow_job)
    writer = quick_writer(tmp_path / "a", video_files_size_in_mb=0.001)
    number = record(writer, [2, 3, 1])
    begun.wait()
    joiner = writer._resources.joiner
    del writer
    gc.collect()
    with pytest.raises(WriteError, match="this process"):
        resume_writer(tmp_path / "a")
    go_on.set()
    joiner.shutdown()
    with resume_writer(tmp_path / "a") as second:
        record(second, [1], first=number)

    check_dataset(tmp_path / "a", [2, 3, 1, 1])


def test_a_forked_child_does_not_give_back_its_parents_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child inherits the writer; when it drops it, the parent's lock stays as it is."""
    lock = WriterLock(tmp_path / ".recording")
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: -1)
        lock.drop()

    assert (tmp_path / ".recording/lock").exists()


def test_a_create_that_fails_holds_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After any error while the lock is held, the folder can be used at once."""

    def fail(*_: object) -> None:
        raise OSError("no space")

    with monkeypatch.context() as patch:
        patch.setattr(start, "write_bytes_atomic", fail)
        with pytest.raises(WriteError, match="a new dataset failed: no space") as error:
            quick_writer(tmp_path / "a")
    with quick_writer(tmp_path / "a") as writer:
        record(writer, [1])

    check_dataset(tmp_path / "a", [1])
    assert error.value.__traceback__ is not None  # which keeps the failed call's variables
