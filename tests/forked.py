# SPDX-License-Identifier: Apache-2.0
"""Work done in a forked process, for programs that kill it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable


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
