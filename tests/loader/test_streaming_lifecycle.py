# SPDX-License-Identifier: Apache-2.0
"""Workers start once, stay, fail, are killed and end; nothing hangs, nothing is left behind."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import threading
import time
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from robostream import StreamingDataLoader
from robostream.errors import VideoFileError, WorkerError
from tests.fixture_datasets import copy_of
from tests.loader.programs import is_alive, open_files, resident_bytes, wait_until
from tests.loader.streams import AV1, blind_stream, flat, indices, open_loader, open_stream
from tests.parameters import long_except
from tests.threads import awake_clock

VIDEO = "videos/observation.images.top/chunk-000/file-000.mp4"
FRAMES = list(range(62))


def pids(loader: StreamingDataLoader) -> list[int]:
    assert loader._running is not None
    return loader._running.pool.pids


def test_workers_start_once_and_stay_over_epochs() -> None:
    """Epochs run through, left early and set by hand are all built by the same processes."""
    loader = open_loader(blind_stream(), 4, num_workers=2)
    list(loader)
    first = pids(loader)
    next(iter(loader))
    loader.set_epoch(7)
    list(loader)

    assert len(set(first)) == 2
    assert pids(loader) == first


@pytest.mark.parametrize("is_transformed", [False, True])
def test_workers_hold_little(is_transformed: bool) -> None:
    """A worker imports no torch without a transform, and takes at most 150 MB of its own."""
    transform = (lambda picture: picture) if is_transformed else None
    loader = open_loader(open_stream(image_transforms=transform), 8, num_workers=1)
    list(loader)
    for pid in pids(loader):
        maps = Path(f"/proc/{pid}/maps").read_text()
        assert ("libtorch" in maps) == is_transformed
        assert is_transformed or own_bytes(pid) < 150e6


def own_bytes(pid: int) -> int:
    """A process's share of its memory (PSS), without what it shares under our name."""
    total, is_ours = 0, False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        if "-" in line.split()[0]:
            is_ours = "memfd:robostream" in line
        elif line.startswith("Pss:") and not is_ours:
            total += int(line.split()[1]) * 1024
    return total


@pytest.mark.parametrize("device", long_except([None, "cpu"], None))
@pytest.mark.parametrize("when", ["waiting", "between"])
def test_a_killed_worker_is_told_at_once_and_replaced(when: str, device: str | None) -> None:
    """Kill -9: the error names worker and signal within a second; the next iterator works.

    The clock is one that stands still while a busy machine lets this process wait.
    """
    assert any(seconds_until_told(when, device) < 1 for _ in range(3))


def seconds_until_told(when: str, device: str | None) -> float:
    loader = open_loader(blind_stream(), 1, num_workers=2, prefetch_factor=1, device=device)
    iterator = iter(loader)
    next(iterator)
    old = pids(loader)
    if when == "between":
        list(iterator)
    os.kill(old[1], signal.SIGKILL)
    killed = rf"worker 1 of 2 \(pid {old[1]}\).*signal 9 \(SIGKILL\)"
    with awake_clock() as clock, pytest.raises(WorkerError, match=killed):
        list(iterator if when == "waiting" else loader)

    assert not any(map(is_alive, old))
    assert sorted(flat(loader)) == FRAMES
    assert not set(old) & set(pids(loader))
    return clock.seconds


@pytest.mark.parametrize("device", long_except([None, "cpu"], None))
@pytest.mark.parametrize("taken", long_except([1, 2, 3, 5], 3))
@pytest.mark.parametrize("end", ["close", "kill"])
def test_what_comes_before_the_end_is_whole(end: str, taken: int, device: str | None) -> None:
    """Batches that are still delivered are the next ones, and the place is behind the last."""
    expected = flat(open_loader(blind_stream(), 1))
    loader = open_loader(blind_stream(), 1, num_workers=2, prefetch_factor=8, device=device)
    iterator = iter(loader)
    found = flat([next(iterator) for _ in range(taken)])
    time.sleep(0.1)  # all that may be built is built
    if end == "close":
        loader.close()
    else:
        os.kill(pids(loader)[0], signal.SIGKILL)
    with pytest.raises(WorkerError):
        found.extend(frame for batch in iterator for frame in batch["index"].tolist())
    state = loader.state_dict()

    assert found == expected[: len(found)]
    rest = open_loader(blind_stream(), 1)
    rest.load_state_dict(state)
    assert flat(rest) == expected[state["position"] :]


def test_all_iterators_are_told_of_a_death() -> None:
    """Two iterators that meet a dead worker raise the same error."""
    loader = open_loader(blind_stream(), 1, num_workers=2, prefetch_factor=1)
    first, second = iter(loader), iter(loader)
    next(first), next(second)
    os.kill(pids(loader)[0], signal.SIGKILL)
    for iterator in (first, second):
        with pytest.raises(WorkerError, match="SIGKILL"):
            list(iterator)
        assert list(iterator) == []


@pytest.mark.parametrize("workers", [0, 2])
def test_a_closed_loader_opens_again(workers: int) -> None:
    """`close` ends the workers; an iterator left over says so; a new one starts new workers."""
    loader = open_loader(blind_stream(), 1, num_workers=workers, prefetch_factor=1)
    iterator = iter(loader)
    next(iterator)
    old = pids(loader)
    loader.close()
    loader.close()

    assert not any(map(is_alive, old))
    with pytest.raises(WorkerError, match=r"loader\.close"):
        list(iterator)
    assert sorted(flat(loader)) == FRAMES


@pytest.mark.parametrize("way", ["loader first", "iterator first", "cycle", "exception"])
def test_workers_end_with_their_loader(way: str) -> None:
    """When loader and iterators are gone, so are the workers, at once or when garbage is found."""
    loader = open_loader(blind_stream(), 4, num_workers=1)
    iterator = iter(loader)
    next(iterator)
    workers = pids(loader)
    if way == "cycle":
        loader.myself = loader  # type: ignore[attr-defined]
    if way == "loader first":
        del loader
        assert sorted(flat([next(iterator)]))
        del iterator
    elif way == "exception":
        with contextlib.suppress(RuntimeError):
            raise_in_loop(loader)
        del loader, iterator
    else:
        del iterator, loader
    if way == "cycle":
        gc.collect()

    assert wait_until(lambda: not any(map(is_alive, workers)), 30)


def raise_in_loop(loader: StreamingDataLoader) -> None:
    for _ in loader:
        raise RuntimeError("in the loop")


@pytest.mark.long
def test_iterators_dropped_by_the_garbage_collector_disturb_no_other() -> None:
    """Iterators that end in the middle of another's work, or in another thread, leave it right."""
    expected = open_loader(blind_stream(), 3)
    for workers in (0, 2):
        loader = open_loader(blind_stream(), 3, num_workers=workers, prefetch_factor=2)
        expected.set_epoch(0)
        dropped = []
        iterator = iter(loader)
        found = []
        for step in range(len(loader)):
            cycle = [iter(loader)]
            cycle.append(cycle)  # type: ignore[arg-type]
            del cycle
            if step % 3 == 2:
                gc.collect()
            dropped.append(iter(loader))
            thread = threading.Thread(target=dropped.clear)
            thread.start()
            found.append(next(iterator)["index"].tolist())
            thread.join()
        gc.collect()

        assert found == indices(expected)


@pytest.mark.parametrize("workers", [0, 2])
def test_threads_may_share_an_iterator(workers: int) -> None:
    """They take turns, and together they get the epoch."""
    batches = iter(open_loader(blind_stream(), 2, num_workers=workers))
    found: list[int] = []
    threads = [threading.Thread(target=lambda: found.extend(flat(batches))) for _ in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(found) == list(range(62))


def test_a_loader_works_in_threads() -> None:
    """One thread after the other, and several at once, each with an iterator of its own."""
    loader = open_loader(blind_stream(), 4, num_workers=2)
    found: list[list[int]] = []
    threads = [threading.Thread(target=lambda: found.append(sorted(flat(loader)))) for _ in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert found == [FRAMES] * 3


def test_waiting_longer_than_the_timeout_is_an_error() -> None:
    """`timeout` bounds the wait for one batch."""

    def slow(picture: object) -> object:
        import time

        time.sleep(0.2)
        return picture

    stream = open_stream(image_transforms=slow)
    loader = open_loader(stream, 16, num_workers=1, timeout=1)
    with pytest.raises(WorkerError, match=r"no batch came within timeout=1"):
        list(loader)


def test_a_batch_is_reported_when_it_is_built() -> None:
    """Not when all are that a worker builds in one go: the timeout is for one."""
    taken: list[int] = []

    def slow(picture: Any) -> Any:
        import time

        if picture.any():  # not the black one that transforms are tried on
            taken.append(1)
            time.sleep(0.3 if len(taken) <= 4 else 120)  # two batches of two cameras, then silence
        return picture

    stream = open_stream(image_transforms=slow)
    loader = open_loader(stream, 1, num_workers=1, prefetch_factor=32, timeout=60)

    assert len(list(islice(loader, 2))) == 2


@pytest.mark.parametrize("workers", long_except([0, 1, 2, 3, 5], 0, 2))
def test_an_error_reaches_the_consumer_with_its_sample(tmp_path: Path, workers: int) -> None:
    """A broken file raises in the loop, naming file, episode, frame and position; nothing hangs."""
    root = copy_of("av1_multifile", tmp_path)
    (root / VIDEO).write_bytes((root / VIDEO).read_bytes()[:1000])
    loader = open_loader(open_stream(root), 4, num_workers=workers)

    with pytest.raises(VideoFileError, match=r"file-000\.mp4.*sample of episode \d, frame \d+"):
        list(loader)


def test_a_worker_that_cannot_go_on_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error outside of any sample arrives as text, not on the terminal."""
    monkeypatch.setattr(
        "robostream.loader.running_pool.pack", lambda worker_config: _pack_nonsense()
    )
    loader = open_loader(blind_stream(), 4, num_workers=1)

    with pytest.raises(WorkerError, match=r"(?s)worker 0 of 1 .*failed:.*Traceback"):
        list(loader)


def _pack_nonsense() -> int:
    from robostream.device import pack

    return pack("no WorkerConfig")


@pytest.mark.long
@pytest.mark.parametrize(("workers", "times"), [(0, 10_000), (2, 10_000)])
def test_ten_thousand_iterators_leak_nothing(workers: int, times: int) -> None:
    """Iterators begun and dropped, with and without a batch, leave nothing behind anywhere."""
    loader = open_loader(blind_stream(lanes=1, episodes=[1]), 4, num_workers=workers)

    def cycle(times: int) -> None:
        for turn in range(times):
            iterator = iter(loader)
            if turn % 2:
                next(iterator)

    cycle(500)
    gc.collect()
    processes = ["self", *pids(loader)]
    threads, files = threading.active_count(), open_files()
    memory = [resident_bytes(pid) for pid in processes]
    cycle(times)
    gc.collect()
    grown = [resident_bytes(p) - b for p, b in zip(processes, memory, strict=True)]

    assert threading.active_count() <= threads
    assert open_files() <= files
    assert max(grown) < 10 * 2**20


@pytest.mark.long
@pytest.mark.parametrize("workers", [0, 2])
def test_many_epochs_leak_nothing(workers: int) -> None:
    """Thirty epochs of pictures keep memory, threads and files where they were, everywhere."""
    loader = open_loader(open_stream(AV1, frame_cache_bytes="1MiB"), 8, num_workers=workers)

    def run(epochs: int) -> None:
        for _ in range(epochs):
            for _batch in loader:
                pass

    run(10)
    gc.collect()
    processes = ["self", *pids(loader)]
    threads, files = threading.active_count(), open_files()
    memory = [resident_bytes(pid) for pid in processes]
    run(30)
    gc.collect()
    grown = [resident_bytes(p) - b for p, b in zip(processes, memory, strict=True)]

    assert threading.active_count() <= threads
    assert open_files() <= files
    assert max(grown) < 15 * 2**20


def test_loaders_begun_and_dropped_leave_no_file_open() -> None:
    """Memory of batches and counters goes with the loader."""
    stream = blind_stream()
    next(iter(open_loader(stream, 4, num_workers=1)))
    gc.collect()
    files = open_files()
    for _ in range(3):
        next(iter(open_loader(stream, 4, num_workers=1)))
        next(iter(open_loader(stream, 4)))
    gc.collect()

    assert open_files() <= files
