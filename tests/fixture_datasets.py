# SPDX-License-Identifier: Apache-2.0
"""The fixture datasets LeRobot wrote, and copies of them to damage.

LeRobot 0.3.3 wrote and read v21_videos and v21_images; `expected/` has their cameras as bytes.
v21_videos_as_v30 is what the converter of LeRobot 0.4.4 made of v21_videos.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from robostream.meta import LeRobotDatasetMetadata

FIXTURES = Path(__file__).parent / "fixtures"
V2_NAMES = ["v21_images", "v21_videos"]
NAMES = sorted(p.name for p in FIXTURES.iterdir() if p.is_dir() and not p.name.startswith("v2"))
ALL_NAMES = [*NAMES, *V2_NAMES]
# ROBOSTREAM_FIXTURES may name a folder of more datasets that LeRobot wrote.
MORE = os.environ.get("ROBOSTREAM_FIXTURES")
ROOTS = [FIXTURES / name for name in ALL_NAMES]
ROOTS += sorted(path for path in Path(MORE).iterdir() if path.is_dir()) if MORE else []


def copy_of(name: str, folder: Path) -> Path:
    """Return a private copy of a fixture."""
    return Path(shutil.copytree(FIXTURES / name, folder / name))


def v20_of(name: str, folder: Path) -> Path:
    """Return a v2.0 copy of a v2.1 fixture: statistics of the whole dataset, in stats.json."""
    root = copy_of(name, folder)
    stats = LeRobotDatasetMetadata(name, root=root).stats
    assert stats is not None
    lists = {k: {name: v.tolist() for name, v in entry.items()} for k, entry in stats.items()}
    (root / "meta" / "stats.json").write_text(json.dumps(lists))
    (root / "meta" / "episodes_stats.jsonl").unlink()
    edit_info(root, lambda info: info.update(codebase_version="v2.0"))
    return root


def root_id(root: Path) -> str:
    """Return a short name of a root, for the names of tests."""
    return f"{root.parent.parent.name}-{root.name}"


def edit_info(root: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change info.json in place."""
    path = root / "meta" / "info.json"
    info = json.loads(path.read_text())
    change(info)
    path.write_text(json.dumps(info))
