# SPDX-License-Identifier: Apache-2.0
"""Runs the measurements of `bench gpu`, each in a process of its own, and prints tables."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from robostream import config
from robostream.bench.datasets import bench_dataset
from robostream.bench.environment import git_commit, machine
from robostream.bench.floor import decode_floor
from robostream.bench.gpu.cases import NVDEC, NVDEC_CODECS, RGB, Case, nvdec_cases, upload_cases
from robostream.bench.gpu.tables import nvdec_table, upload_table
from robostream.bench.memory import touch_memory
from robostream.bench.table import format_table
from robostream.errors import SelectionError
from robostream.loader import share_of_cores, usable_memory

_SECONDS, _QUICK_SECONDS = 6.0, 2.0
# Less than all pictures of a dataset take, as they are and resized.
_FRAME_CACHE, _RESIZED_FRAME_CACHE = "2GiB", "512MiB"
# What a loader takes with that: its batches, too.
_TOUCHED_BYTES = 4 << 30
PARTS = ("uploads", *NVDEC_CODECS)


def run(
    quick: bool,
    parts: Sequence[str] = PARTS,
    workers: Sequence[int] = (),
    seconds: float = 0.0,
) -> dict[str, Any]:
    """Measure, print the tables, and return the figures.

    Args:
        quick: Fewer numbers of workers, and shorter.
        parts: What is measured: uploads, and the codecs NVDEC decodes.
        workers: How many worker processes upload, one number after the other; by default 1, 2, 4
            and so on up to the cores.
        seconds: How long each is measured.
    """
    if not torch.cuda.is_available():
        raise SelectionError("bench gpu: torch sees no CUDA device on this machine")
    config.quiet_encoders()
    seconds = seconds or (_QUICK_SECONDS if quick else _SECONDS)
    cores = share_of_cores(1)
    figures: dict[str, Any] = {
        "machine": machine() | {"gpu": torch.cuda.get_device_name(), "cores": cores},
        "seconds": seconds,
    }
    if "uploads" in parts:
        usual = [cores] if quick else [n for n in (1, 2, 4, 8, 16, 32) if n <= cores]
        cases = upload_cases(list(workers) or usual)
        figures["uploads"] = uploads = list(_measure_uploads(cases, seconds))
        print(format_table(*upload_table(uploads)), flush=True)
    nvdec = [case for codec in NVDEC_CODECS if codec in parts for case in nvdec_cases(codec)]
    if nvdec:
        figures["nvdec"] = [_measure(case, seconds) for case in nvdec]
        print(format_table(*nvdec_table(figures["nvdec"])), flush=True)
    return figures


def _measure_uploads(cases: Iterable[Case], seconds: float) -> Iterator[dict[str, Any]]:
    """Measure beside the floor, with memory that the machine has at hand."""
    floors: dict[Case, float] = {}
    for case in cases:
        # One floor for both ways; they come one after the other.
        both = dataclasses.replace(case, way=RGB)
        if both not in floors:
            files = sorted(map(str, _dataset(case).glob("videos/**/*.mp4")))
            floors[both] = decode_floor(files, case.workers, at_most_s=seconds / 3)
        touch_memory(min(_TOUCHED_BYTES, usable_memory() // 2))
        yield _measure(case, seconds, floors[both])


def _dataset(case: Case) -> Path:
    return bench_dataset(f"gpu-{case.codec}", case.spec)


def _frame_cache(case: Case) -> str:
    if case.way == NVDEC:
        return "auto"
    return _RESIZED_FRAME_CACHE if case.resize else _FRAME_CACHE


def _measure(case: Case, seconds: float, floor: float | None = None) -> dict[str, Any]:
    request = dataclasses.asdict(case) | {
        "root": str(_dataset(case)),
        "batch_size": case.batch_size,
        "seconds": seconds,
        "frame_cache_bytes": _frame_cache(case),
    }
    done = subprocess.run(
        [sys.executable, "-m", "robostream.bench.gpu.one_run", json.dumps(request)],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"{case} failed:\n{done.stderr}")
    del request["root"]
    more = {"mode": case.mode, "git_commit": git_commit()}
    figures: dict[str, Any] = request | more | json.loads(done.stdout.splitlines()[-1])
    if floor is not None:
        figures |= {
            "floor_images_per_s": floor,
            "over_floor": figures["images_per_s"] / floor,
        }
    # One by one, so that a run that is cut off has not measured for nothing.
    print(json.dumps(figures), flush=True)
    return figures
