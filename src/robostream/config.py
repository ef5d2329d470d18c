# SPDX-License-Identifier: Apache-2.0
"""The only home of default values and environment variables."""

from __future__ import annotations

import os
import re
from pathlib import Path

CODEBASE_VERSION = "v3.0"

CHUNKS_SIZE = 1000
DATA_FILES_SIZE_IN_MB = 100
VIDEO_FILES_SIZE_IN_MB = 200
DATA_PATH = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
VIDEO_PATH = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
EPISODES_PATH = "meta/episodes/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
INFO_PATH = "meta/info.json"
STATS_PATH = "meta/stats.json"
TASKS_PATH = "meta/tasks.parquet"

# LeRobot's default: any frame further than this from the wanted time is an error.
TOLERANCE_S = 1e-4

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?i?b?)\s*", re.IGNORECASE)
_UNITS = {"": 1, "b": 1} | {
    f"{letter}{suffix}": base**power
    for power, letter in enumerate("kmgt", start=1)
    for suffix, base in (("", 1024), ("ib", 1024), ("i", 1024), ("b", 1000))
}


def parse_bytes(size: int | str) -> int:
    """Return a number of bytes from an int or a human size such as "2GiB", "500mb" or "64k"."""
    if isinstance(size, int):
        if size < 0:
            raise ValueError(f"want a size of 0 bytes or more, got {size}")
        return size
    match = _SIZE.fullmatch(size)
    if match is None:
        raise ValueError(f"want a size such as 2GiB, 500MB or a number of bytes, got {size!r}")
    return int(float(match[1]) * _UNITS[match[2].lower()])


def format_bytes(size: float) -> str:
    """Return a size in bytes as a person writes it, such as "1.5 GiB"."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def hf_home() -> Path:
    """Return the Hugging Face home folder (`HF_HOME`, else under `XDG_CACHE_HOME`)."""
    cache = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    return Path(os.environ.get("HF_HOME", f"{cache}/huggingface")).expanduser()


def lerobot_home() -> Path:
    """Return the folder of local LeRobot datasets (`HF_LEROBOT_HOME`)."""
    if "LEROBOT_HOME" in os.environ:
        raise ValueError(
            "the environment variable LEROBOT_HOME is no longer read; rename it to HF_LEROBOT_HOME "
            f"(it is now {os.environ['LEROBOT_HOME']!r})"
        )
    default = hf_home() / "lerobot"
    return Path(os.environ.get("HF_LEROBOT_HOME", default)).expanduser()
