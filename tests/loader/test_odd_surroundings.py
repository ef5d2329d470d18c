# SPDX-License-Identifier: Apache-2.0
"""Programs started with closed outputs, ignored signals or little memory."""

from __future__ import annotations

import sys

import pytest

from tests.loader.programs import run


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


def test_a_worker_killed_unseen_is_not_said_to_have_ended_well() -> None:
    """Where SIGCHLD is ignored, the system tells nobody how a process ended."""
    run(
        """
from robostream.errors import WorkerError
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
loader = open_loader(2, batch_size=1)
batches = iter(loader)
next(batches)
os.kill(loader._team.crew.pids[0], signal.SIGKILL)
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
