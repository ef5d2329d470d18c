# SPDX-License-Identifier: Apache-2.0
"""The fixture datasets LeRobot wrote, and copies of them to damage."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

FIXTURES = Path(__file__).parent / "fixtures"
NAMES = sorted(path.name for path in FIXTURES.iterdir() if path.is_dir())
# ROBOSTREAM_FIXTURES may name a folder of more datasets that LeRobot wrote.
MORE = os.environ.get("ROBOSTREAM_FIXTURES")
ROOTS = [FIXTURES / name for name in NAMES]
ROOTS += sorted(path for path in Path(MORE).iterdir() if path.is_dir()) if MORE else []


def copy_of(name: str, folder: Path) -> Path:
    """Return a private copy of a fixture."""
    return Path(shutil.copytree(FIXTURES / name, folder / name))


def root_id(root: Path) -> str:
    """Return a short name of a root, for the names of tests."""
    return f"{root.parent.parent.name}-{root.name}"


def edit_info(root: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change info.json in place."""
    path = root / "meta" / "info.json"
    info = json.loads(path.read_text())
    change(info)
    path.write_text(json.dumps(info))
