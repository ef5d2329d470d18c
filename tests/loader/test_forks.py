# SPDX-License-Identifier: Apache-2.0
"""Programs that fork: parent and child each go on, and neither disturbs the other."""

from __future__ import annotations

import json
import sys

import pytest

from tests.loader.programs import run
from tests.loader.streams import blind_stream, flat, open_loader
from tests.parameters import long_except

ANY_FORK = ["-W", "ignore::DeprecationWarning"]  # Python 3.12 warns of any fork beside threads
FORK = """
loader = open_loader({workers}, batch_size=1, device={device!r})
batches = iter(loader)
head = [next(batches)["index"].item() for _ in range(9)]
heard, said = os.pipe()
child = os.fork()
if child == 0:
    code = 1
    try:
        try:
            next(batches)
        except RuntimeError as error:
            assert "fork" in str(error), error
        else:
            raise AssertionError("the parent's iterator delivers in a fork")
        os.write(said, b"refused")
        loader.set_epoch(3)
        for _ in range(2):
            assert frames(loader) == list(range(62))
        pids = loader._running.pool.pids
        loader.close()
        code = 0
    finally:
        os._exit(code)
os.close(said)
assert os.read(heard, 9) == b"refused"
head += [next(batches)["index"].item() for _ in range(20)]
assert os.waitpid(child, 0)[1] == 0
head += [batch["index"].item() for batch in batches]
assert sorted(head) == list(range(62)), head
print(head)
"""


# Not on a GPU: a fork cannot use CUDA again.
@pytest.mark.parametrize("device", long_except([None, "cpu"], None))
@pytest.mark.parametrize("workers", long_except([0, 2], 2))
def test_a_fork_has_workers_of_its_own(workers: int, device: str | None) -> None:
    """A forked child iterates an inherited loader, and the parent's iterator does not notice."""
    program = FORK.format(workers=workers, device=device)
    forked = run(program, python=[sys.executable, "-W", "error", *ANY_FORK, "-c"])

    assert json.loads(forked) == flat(open_loader(blind_stream(), 1, num_workers=workers))


def test_a_fork_may_come_while_a_thread_starts_workers() -> None:
    """The fork does not wait for that thread, which it does not have."""
    program = """
from robostream.loader import dataloader
real, is_starting, is_forked = dataloader.start_pool, threading.Event(), threading.Event()
def slow(*arguments):
    is_starting.set()
    is_forked.wait()
    return real(*arguments)
dataloader.start_pool = slow
loader, found = open_loader(1), []
thread = threading.Thread(target=lambda: found.extend(frames(loader)))
thread.start()
is_starting.wait()
child = os.fork()
is_forked.set()
if child == 0:
    signal.alarm(60)    # ends this process
    delivered = frames(loader)
    loader.close()
    os._exit(delivered != list(range(62)))
assert os.waitpid(child, 0)[1] == 0
thread.join()
assert found == list(range(62))
"""
    run(program, python=[sys.executable, *ANY_FORK, "-c"])


def test_an_iterator_over_the_stream_goes_on_in_a_fork_and_outside() -> None:
    """Parent and child each deliver what is left, with the right pictures."""
    program = """
import torch
from robostream import LeRobotDataset
items = LeRobotDataset("some/name", root=sys.argv[1], return_uint8=True)
samples = iter(open_loader(0, camera_keys=None).stream)
seen = [next(samples)["index"].item() for _ in range(9)]
child = os.fork()
code = 1
try:
    for sample in samples:
        seen.append(sample["index"].item())
        if len(seen) % 5 == 0:
            for camera in items.meta.camera_keys:
                assert torch.equal(sample[camera], items[seen[-1]][camera])
    assert sorted(seen) == list(range(62))
    code = 0
finally:
    if child == 0:
        os._exit(code)
assert os.waitpid(child, 0)[1] == 0
"""
    run(program, python=[sys.executable, *ANY_FORK, "-c"])
