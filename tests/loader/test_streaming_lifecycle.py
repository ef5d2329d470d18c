# SPDX-License-Identifier: Apache-2.0
"""Starting, stopping, failing and dying: nothing hangs, nothing is left behind."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import fsspec
import pytest
import torch

from robostream import StreamingLeRobotDataset
from robostream.assemble import BatchWriter
from robostream.decode import build_index
from robostream.errors import SelectionError, VideoFileError
from robostream.loader.options import choose_depth
from tests.fixture_datasets import FIXTURES, copy_of
from tests.loader.streams import AV1, blind_stream, flat, open_loader, open_stream

VIDEO = "videos/observation.images.top/chunk-000/file-000.mp4"


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def worker_processes() -> list[int]:
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return [int(child) for child in children]


@pytest.mark.slow
def test_ten_thousand_starts_and_stops_leak_nothing() -> None:
    """Iterators begun and dropped at once leave no thread, file or memory behind."""
    stream = blind_stream(lanes=1, episodes=[1])
    loader = open_loader(stream, 4)

    def cycle(times: int) -> None:
        for _ in range(times):
            next(iter(loader))

    cycle(200)
    gc.collect()
    threads, files, memory = threading.active_count(), open_files(), resident_bytes()
    cycle(10_000)
    loader._current.close()  # type: ignore[union-attr]
    gc.collect()

    assert threading.active_count() <= threads
    assert open_files() <= files
    assert resident_bytes() - memory < 20 * 2**20


@pytest.mark.slow
def test_ten_epochs_leak_nothing() -> None:
    """Decoding ten epochs with a small store keeps memory, threads and files where they were."""
    stream = open_stream(frame_cache_bytes="1MiB")
    loader = open_loader(stream, 8)
    for _ in range(3):
        list(loader)
    gc.collect()
    threads, files, memory = threading.active_count(), open_files(), resident_bytes()
    for _ in range(10):
        for _batch in loader:
            pass
    gc.collect()

    assert threading.active_count() <= threads
    assert open_files() <= files
    assert resident_bytes() - memory < 30 * 2**20


@pytest.mark.parametrize("way", ["break", "exception", "del"])
def test_leaving_early_stops_the_threads(way: str) -> None:
    """However a loop is left, its threads end."""
    before = threading.active_count()
    loader = open_loader(open_stream(), 4)
    iterator = iter(loader)
    next(iterator)
    assert threading.active_count() > before
    if way == "break":
        next(iter(loader))
        loader._current.close()  # type: ignore[union-attr]
    elif way == "exception":
        with pytest.raises(RuntimeError, match="thrown in"):
            iterator.throw(RuntimeError("thrown in"))  # type: ignore[attr-defined]
    else:
        del iterator, loader
        gc.collect()

    assert threading.active_count() == before


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_reaches_the_consumer_with_its_sample(tmp_path: Path, workers: int) -> None:
    """A broken file raises in the loop, naming file, episode, frame and position; nothing hangs."""
    root = copy_of("av1_multifile", tmp_path)
    (root / VIDEO).write_bytes((root / VIDEO).read_bytes()[:1000])
    loader = open_loader(open_stream(root), 4, num_workers=workers)

    with pytest.raises(VideoFileError, match=r"file-000\.mp4.*sample of episode \d, frame \d+"):
        list(loader)
    assert threading.active_count() < 10


def test_an_error_of_a_transform_keeps_its_type() -> None:
    """A user's own exception arrives as it is, with the sample appended."""

    def fail(image: torch.Tensor) -> torch.Tensor:
        raise KeyError("no such augmentation")

    loader = open_loader(open_stream(image_transforms=fail), 4)
    with pytest.raises(KeyError, match=r"no such augmentation.*sample of episode"):
        next(iter(loader))


def test_a_killed_worker_is_an_error_not_a_hang() -> None:
    """A worker killed with kill -9 raises in the loop within seconds."""
    resource_tracker.ensure_running()  # a child too, and not one to kill
    others = worker_processes()
    loader = open_loader(blind_stream(), 1, num_workers=1, prefetch_factor=1)
    iterator = iter(loader)
    next(iterator)
    for child in set(worker_processes()) - set(others):
        os.kill(child, signal.SIGKILL)

    with pytest.raises(RuntimeError, match=r"exited unexpectedly|killed by signal"):
        list(iterator)


def test_workers_end_with_their_loader() -> None:
    """Leaving a loop with persistent workers and dropping the loader leaves no process."""
    before = set(worker_processes())
    loader = open_loader(blind_stream(), 4, num_workers=2)
    next(iter(loader))
    assert len(set(worker_processes()) - before) >= 2
    loader._current.close()  # type: ignore[union-attr]
    del loader
    gc.collect()
    deadline = time.monotonic() + 30
    while set(worker_processes()) - before and time.monotonic() < deadline:
        time.sleep(0.1)

    assert set(worker_processes()) <= before


PROGRAM = """
import sys, threading
from robostream import StreamingDataLoader, StreamingLeRobotDataset
stream = StreamingLeRobotDataset("some/name", root=sys.argv[1])
loader = open_loader(stream, 4, num_workers=int(sys.argv[2]))
print("ready", flush=True)
while True:
    for batch in loader:
        pass
"""


@pytest.mark.parametrize("workers", [0, 2])
def test_ctrl_c_ends_the_program(workers: int) -> None:
    """An interrupt is a KeyboardInterrupt; the program and its workers end."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(AV1), str(workers)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(1.0)
    # An interrupt that arrives inside a finaliser is dropped by Python, so people press it twice.
    for _ in range(6):
        os.killpg(process.pid, signal.SIGINT)
        try:
            _, errors = process.communicate(timeout=10)
            break
        except subprocess.TimeoutExpired:
            continue

    assert process.returncode not in (None, 0)
    assert "KeyboardInterrupt" in errors
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)


def test_a_program_that_ends_mid_epoch_ends() -> None:
    """Reaching the end of a script with an iterator open does not hang the interpreter."""
    code = PROGRAM.split("while True")[0] + "it = iter(loader); next(it)"
    done = subprocess.run(
        [sys.executable, "-c", code, str(AV1), "0"], capture_output=True, text=True, timeout=60
    )

    assert (done.returncode, done.stderr) == (0, "")


def test_a_used_stream_pickles_small_and_works_elsewhere() -> None:
    """Decoders, frames and rows stay behind."""
    stream = open_stream()
    next(iter(open_loader(stream, 4)))
    blob = pickle.dumps(stream)

    assert len(blob) < 60_000
    assert sorted(flat(open_loader(pickle.loads(blob), 8))) == list(range(62))


@pytest.mark.parametrize("name", ["buffer_size", "rng", "max_num_shards", "video_prefetch_workers"])
def test_the_references_idle_arguments_warn(name: str) -> None:
    """They are accepted, and said to be ignored."""
    with pytest.warns(DeprecationWarning, match=f"{name} is ignored"):
        blind_stream(**{name: 4})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"streaming": False}, "use LeRobotDataset"),
        ({"video_decode_device": "cuda"}, "decodes on the CPU only"),
        ({"on_bad_episode": "ignore"}, "on_bad_episode must be one of"),
        ({"episodes": []}, "no episode"),
        ({"lanes": 0}, "lanes must be"),
        ({"frame_cache_bytes": "much"}, "want a size such as 2GiB"),
    ],
)
def test_what_cannot_be_honoured_is_refused(options: dict[str, Any], message: str) -> None:
    """An argument is honoured or an error, never shrugged off."""
    with pytest.raises(ValueError, match=message):
        blind_stream(**options)


def test_the_loader_refuses_what_is_no_stream() -> None:
    """A map-style dataset or a nonsense batch size is told at once."""
    with pytest.raises(SelectionError, match="want a StreamingLeRobotDataset"):
        open_loader([1, 2, 3], 2)  # type: ignore[arg-type]
    with pytest.raises(SelectionError, match="batch_size must be"):
        open_loader(blind_stream(), 0)


def test_data_may_lie_elsewhere_than_metadata(tmp_path: Path) -> None:
    """`data_files_root` holds data/ and videos/; metadata comes from root."""
    data = copy_of("av1_multifile", tmp_path)
    meta = tmp_path / "meta_only" / "meta"
    meta.parent.mkdir()
    (data / "meta").rename(meta)
    stream = StreamingLeRobotDataset("x", root=meta.parent, data_files_root=f"{data}/")

    assert sorted(flat(open_loader(stream, 8))) == list(range(62))


def test_indices_of_remote_videos_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second run opens remote videos from what the first one saved under the fingerprint."""
    monkeypatch.setenv("ROBOSTREAM_CACHE", str(tmp_path))
    memory = fsspec.filesystem("memory")
    memory.put(str(FIXTURES / "av1_multifile"), "/indexed", recursive=True)
    built: list[str] = []
    monkeypatch.setattr(
        "robostream.decode.engine.build_index",
        lambda source: built.append(source.name) or build_index(source),
    )
    for _ in range(2):
        stream = StreamingLeRobotDataset("x", root="memory://indexed")
        assert sorted(flat(open_loader(stream, 8))) == list(range(62))
        assert len(built) == 6
    saved = tmp_path / "indices" / stream.meta.fingerprint
    assert len(list(saved.iterdir())) == 6


def test_a_cache_that_cannot_be_written_is_no_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Indices are then made each time, and it is said once."""
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("ROBOSTREAM_CACHE", str(tmp_path / "file"))
    fsspec.filesystem("memory").put(str(FIXTURES / "av1_multifile"), "/unkept", recursive=True)
    stream = StreamingLeRobotDataset("x", root="memory://unkept")

    assert sorted(flat(open_loader(stream, 8))) == list(range(62))
    assert caplog.text.count("cannot be kept") == 1


def test_statistics_are_flat_numbers_that_add_up() -> None:
    """stats() is ready for a logger; images are counted over all workers."""
    for workers in (0, 2):
        stream = open_stream(FIXTURES / "av1_multifile")
        loader = open_loader(stream, 8, num_workers=workers)
        list(loader)
        stats = loader.stats()

        assert all(isinstance(value, float) for value in stats.values())
        assert stats["samples"] == 62
        assert stats["images_delivered"] == 124
        assert stats["images_decoded"] >= 124
        assert stats["samples_per_s"] > 0
        assert stream.timing_stats()["decode_s_total"] > 0
        assert stream.video_decoder_cache_stats()["misses"] >= 6


@pytest.mark.parametrize("threads", [1, 32])
def test_batches_ahead_are_as_many_as_asked_for(
    threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory for no more batches is taken than `prefetch_factor` and the one in hand."""
    made: list[int] = []
    monkeypatch.setattr(
        "robostream.loader.delivery.BatchWriter",
        lambda size, *args, **kwargs: made.append(size) or BatchWriter(size, *args, **kwargs),
    )
    stream = open_stream(AV1, camera_keys=["observation.images.top"])
    loader = open_loader(stream, 2, prefetch_factor=3)
    batches = iter(loader)
    next(batches)
    time.sleep(0.3)

    # With more threads than samples in three batches, as many as give each thread a sample.
    assert len(made) <= max(3, threads // 2) + 1
    batches.close()  # type: ignore[attr-defined]


def test_an_error_that_does_not_come_back_is_raised() -> None:
    """A transform that failed once has failed, also if it would work the second time."""
    calls: list[int] = []

    def fail_once(picture: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        if len(calls) == 20:
            raise RuntimeError("a hiccup")
        return picture

    stream = open_stream(AV1, image_transforms=fail_once)
    with pytest.raises(RuntimeError, match="a hiccup"):
        list(open_loader(stream, 8))


def test_large_batches_are_built_fewer_at_a_time() -> None:
    """Prefetch keeps to the memory batches may take, with two batches at least."""
    assert choose_depth(None, 20 << 20) == 4
    assert choose_depth(None, 300 << 20) == 2
    assert choose_depth(None, 4 << 30) == 2
    assert choose_depth(9, 4 << 30) == 9
