# SPDX-License-Identifier: Apache-2.0
"""What a figure was measured on: machine, versions, commit."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_PACKAGES = ("robostream", "torch", "numpy", "pyarrow", "av", "huggingface_hub", "fsspec")


def machine() -> dict[str, object]:
    """Return the machine, the versions and the commit a figure was measured with."""
    return {
        "cpus": os.cpu_count(),
        "cpu": _cpu_model(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "versions": {package: _version(package) for package in _PACKAGES},
        "git_commit": git_commit(),
    }


def git_commit() -> str | None:
    """Return the commit of the source, with "-dirty" where files differ from it; None outside git.

    An installed robostream may lie inside of another repository, whose commit says nothing.
    """
    source = Path(__file__).parents[3]
    if not (source / ".git").exists():
        return None
    commit = _git(source, "rev-parse", "--short=12", "HEAD")
    changed = _git(source, "status", "--porcelain", "--untracked-files=no")
    return f"{commit}-dirty" if commit and changed else commit


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    found = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return found[0] if found else platform.processor() or "unknown"
