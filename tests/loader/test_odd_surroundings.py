# SPDX-License-Identifier: Apache-2.0
"""Programs started with closed outputs, ignored signals or little memory."""

from __future__ import annotations

import sys

import pytest

from tests.loader.programs import run


@pytest.mark.long
@pytest.mark.parametrize("closed", ["1>&-", "2>&-", "0<&- 1>&- 2>&-"])
def test_outputs_may_be_closed(closed: str) -> None:
    """Workers print no error of ours, and what a transform prints disturbs no message."""
    python = ["bash", "-c", f'exec "$0" -c "$@" {closed}', sys.executable]
    code = """
consumer = os.getpid()
closed = [n for n, output in ((1, sys.__stdout__), (2, sys.__stderr__)) if output is None]
def shout(picture):
    if os.getpid() != consumer:
        [os.write(number, b"shout") for number in closed]
    return picture
loader = open_loader(1, camera_keys=None, image_transforms=shout)
assert frames(loader) == list(range(62))
loader.close()
"""
    run(code, python=python)


@pytest.mark.long
def test_a_worker_killed_unseen_is_not_said_to_have_ended_well() -> None:
    """Where SIGCHLD is ignored, the system tells nobody how a process ended."""
    run(
        """
from robostream.errors import WorkerError
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
loader = open_loader(2, batch_size=1)
batches = iter(loader)
next(batches)
os.kill(loader._running.pool.pids[0], signal.SIGKILL)
try:
    list(loader)
except WorkerError as error:
    assert "SIGCHLD" in str(error) and "exit code" not in str(error), error
else:
    raise AssertionError("nothing was said")
loader.set_epoch(0)
assert frames(loader) == list(range(62))
"""
    )


@pytest.mark.long
@pytest.mark.parametrize("workers", [0, 1])
def test_too_little_memory_names_what_to_lower(workers: int) -> None:
    """Under `ulimit -v`: for the memory of all batches, and in the middle of a sample."""
    run(
        f"workers = {workers}"
        + """
import mmap, resource
import numpy, torch
from robostream.errors import WorkerError
from robostream.loader.resources import usable_memory, whole_memory

def greedy(picture):
    return torch.from_numpy(numpy.empty(1 << 45, "u1")) if picture.any() else picture

def told(loader):
    try:
        list(loader)
    except WorkerError as error:
        return all(name in str(error) for name in ("frame_cache_bytes", "batch_size", "ulimit -v"))

loader = open_loader(workers, camera_keys=None, image_transforms=greedy)
assert told(loader)
loader.close()
used = int(open("/proc/self/statm").read().split()[0]) * mmap.PAGESIZE
limit = used + (64 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
assert usable_memory() <= 64 << 20 and whole_memory() <= limit
stream = StreamingLeRobotDataset("some/name", root=sys.argv[1], rank=0, world_size=1)
assert told(StreamingDataLoader(stream, 62, num_workers=1, prefetch_factor=1 << 10))
"""
    )
