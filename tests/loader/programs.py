# SPDX-License-Identifier: Apache-2.0
"""Programs that use a loader, run as processes of their own, and what is seen of processes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.loader.streams import AV1

# What a command that is to take SIGINT begins with: a shell lets its background jobs ignore it, and
# what they start would inherit that.
TAKES_CTRL_C = ("env", "--default-signal=INT")

HEAD = """
import gc, os, signal, sys, threading, time
from robostream import StreamingDataLoader, StreamingLeRobotDataset

def open_loader(workers=2, batch_size=4, root=sys.argv[1], device=None, **options):
    options = {"rank": 0, "world_size": 1, "return_uint8": True, "camera_keys": []} | options
    stream = StreamingLeRobotDataset("some/name", root=root, **options)
    return StreamingDataLoader(stream, batch_size, num_workers=workers, device=device)

def frames(loader):
    return sorted(i for batch in loader for i in batch["index"].tolist())
"""


def start(code: str, *, root: Path = AV1, python: list[str] | None = None) -> Any:
    """Start a program in a session of its own; `python` comes before it on the command line."""
    command = [sys.executable, "-c"] if python is None else python
    return subprocess.Popen(
        [*TAKES_CTRL_C, *command, HEAD + code, str(root)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def run(code: str, *, root: Path = AV1, python: list[str] | None = None) -> str:
    """Run a program to its end; return what it printed. It must not complain."""
    program = start(code, root=root, python=python)
    output, errors = program.communicate(timeout=300)
    assert (program.returncode, errors) == (0, ""), (program.returncode, errors)
    return str(output)


def without_progress(errors: str) -> str:
    """Return a command's messages without the lines of progress that it prints every 10 s."""
    return re.sub(r"^[\w: ]+: (\d+%|0 of 0), .*/s.*\n", "", errors, flags=re.MULTILINE)


def is_alive(pid: int) -> bool:
    """Whether a process is there and not just waiting to be collected."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def wait_until(is_true: Callable[[], bool], timeout_s: float) -> bool:
    """Wait until something is true; return whether it was so in time."""
    deadline = time.monotonic() + timeout_s
    while not is_true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def open_files() -> int:
    """How many files this process has open."""
    return len(os.listdir("/proc/self/fd"))


def resident_bytes(pid: int | str = "self") -> int:
    """How much memory a process has in use."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
