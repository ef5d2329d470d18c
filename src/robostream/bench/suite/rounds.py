# SPDX-License-Identifier: Apache-2.0
"""All cases in turn, several times: what disturbs the machine for a while disturbs all of them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from robostream.bench.results import Figures, medians, read_figures
from robostream.bench.stream.settings import WARMUP_BATCHES
from robostream.bench.suite.cases import FIRST_MINUTE, Case
from robostream.bench.suite.shapes import SHAPES
from robostream.errors import RobostreamError

_FLOOR_S = 2.0
_MINUTE_S = 60.0
# A sample of this mode has many pictures, so fewer samples take equally long.
_SARM_BATCHES = 80
# What tells about the machine that a run was on; published files leave it out.
_PRIVATE = ("root", "data_files_root", "node", "definitions", "machine")


def run_rounds(
    cases: Sequence[Case], roots: dict[str, Path], *, rounds: int, out: Path
) -> dict[Case, list[Figures]]:
    """Return the figures of each case in each round; each run is kept in `out`, too."""
    shutil.rmtree(out, ignore_errors=True)
    found: dict[Case, list[Figures]] = {case: [] for case in cases}
    for number in range(rounds):
        for case in cases:
            flags = ["--num_batches", str(_epoch_batches(case, roots[case.shape]))]
            figures = _run(case, roots[case.shape], out / f"round-{number}", flags)
            found[case].append(figures)
            print(
                f"round {number + 1}: {case.name} {case.mode}: "
                f"{figures['images_per_s']:,.0f} images/s, "
                f"floor {figures['floor_images_per_s']:,.0f}",
                flush=True,
            )
    return found


def run_first_minute(roots: dict[str, Path], out: Path) -> Figures:
    """Return the figures of a whole minute of one case, over as many epochs as it has."""
    flags = ["--at_most_s", str(_MINUTE_S), "--num_batches", str(10**9)]
    return _run(FIRST_MINUTE, roots[FIRST_MINUTE.shape], out, flags)


def case_figures(case: Case, runs: Sequence[Figures]) -> Figures:
    """Return what is published of a case: medians, and the ratio to the floor of each round."""
    over = [run["images_per_s"] / run["floor_images_per_s"] for run in runs]
    return {
        "name": case.name,
        "data": SHAPES[case.shape].title,
        "mode": case.mode,
        "setting": case.setting,
        **medians(runs),
        "over_floor": medians([{"ratio": ratio} for ratio in over])["ratio"],
        "over_floor_rounds": over,
    }


def public(figures: Figures) -> Figures:
    """Return figures without what says where they were measured. Pure."""
    return {name: value for name, value in figures.items() if name not in _PRIVATE}


def _epoch_batches(case: Case, root: Path) -> int:
    """Return the batches of one epoch after the warm-up: later ones may find all pictures kept."""
    info: dict[str, Any] = json.loads((root / "meta" / "info.json").read_text())
    whole = int(info["total_frames"]) // case.batch_size - WARMUP_BATCHES
    return whole if case.mode == "single" else min(whole, _SARM_BATCHES)


def _run(case: Case, root: Path, out: Path, flags: Sequence[str]) -> Figures:
    before = set(out.glob("*.json"))
    command = [sys.executable, "-m", "robostream.bench.stream"]
    command += ["--repo_id", f"bench/{case.shape}", "--root", str(root), "--source", case.name]
    command += ["--mode", case.mode, "--batch_size", str(case.batch_size), *case.flags]
    command += ["--floor_s", str(_FLOOR_S), "--out_dir", str(out), *flags]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RobostreamError(f"{case.name} {case.mode} failed: {done.stderr.strip()}")
    (path,) = set(out.glob("*.json")) - before
    return read_figures(path)
