# SPDX-License-Identifier: Apache-2.0
"""Errors of the disk or an encoder become one error that says what failed and what is safe."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import av

from robostream.byte_sizes import format_bytes
from robostream.errors import WriteError


@contextmanager
def writing(what: str, root: Path, *, cure: str) -> Iterator[None]:
    """Turn any error of the disk or an encoder into a WriteError that names what was written."""
    try:
        yield
    except WriteError:
        raise
    except (OSError, av.FFmpegError) as error:
        raise WriteError(
            f"{root}: writing {what} failed: {error}. {_free_space(root)} "
            f"All episodes saved before are intact. {cure}"
        ) from error


def _free_space(root: Path) -> str:
    try:
        return f"The disk has {format_bytes(shutil.disk_usage(root).free)} left."
    except OSError as error:
        return f"The folder cannot be reached ({error})."
