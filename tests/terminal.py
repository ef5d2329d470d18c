# SPDX-License-Identifier: Apache-2.0
"""A terminal that programs of tests write to."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import termios


def shown_on_terminal(command: list[str], columns: int) -> str:
    """Run a command to its end; return what it showed on a terminal of that width.

    Standard error is the terminal. It is read all along: a full one would block the program.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with subprocess.Popen(command, stdin=theirs, stderr=theirs) as child:
        os.close(theirs)
        written = b""
        while True:
            try:
                written += os.read(ours, 4096)
            except OSError:  # the terminal's other side is closed
                break
    os.close(ours)
    assert child.returncode == 0
    return written.decode()
