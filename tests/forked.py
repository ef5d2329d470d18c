# SPDX-License-Identifier: Apache-2.0
"""Work done in a forked process, for programs that kill it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

# What changes names on disk; a process may die before any of these.
STEPS = ("rename", "replace", "mkdir", "rmdir", "unlink")


def in_child(work: Callable[[], object]) -> int:
    """Run in a forked process and return its id."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            # Not sys.exit: the parent's buffers and exit handlers are not the child's to run.
            sys.stderr.flush()
            os._exit(code)
    return child


def die_before_step(step: int) -> None:
    """Let this process be killed before its `step`-th change of a name on disk from now on."""
    left = step
    for name in STEPS:
        real: Callable[..., Any] = getattr(os, name)

        def counted(*args: Any, _real: Callable[..., Any] = real, **options: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return _real(*args, **options)

        setattr(os, name, counted)
