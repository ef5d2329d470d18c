# SPDX-License-Identifier: Apache-2.0
"""What lies where a dataset was looked for, and where one may be instead."""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path

from robostream import config

_WANTED = "Point root at the folder that holds meta/, data/ and videos/."
_NAMED = 3
# A folder of very many files is not looked through to its end for a message.
_MOST_ENTRIES = 1000


def explain_missing(root: Path | str) -> str:
    """Return what was found instead of a dataset, and what to do."""
    if not isinstance(root, Path):
        return _WANTED
    try:
        return _explain_place(root)
    except OSError as error:
        return f"{root} cannot be looked into: {error.strerror}. {_WANTED}"


def _explain_place(root: Path) -> str:
    if not root.is_dir():
        there = "a file" if root.exists() else "nothing"
        return f"There is {there} at {root}. {_WANTED}"
    if (root.parent / config.INFO_PATH).is_file():
        return f"The folder above it is a dataset: point root at {root.parent}."
    names = sorted(entry.name for entry in islice(os.scandir(root), _MOST_ENTRIES))
    below = [name for name in names if (root / name / config.INFO_PATH).is_file()]
    if below:
        return f"There are datasets below {root}: {_listed(below)}. Point root at one of them."
    return f"The folder {f'holds {_listed(names)}' if names else 'is empty'}. {_WANTED}"


def explain_no_folder(name: str) -> str:
    """Return that a name is no local dataset's either, and what lies in a folder of that name."""
    there = explain_missing(Path(name).absolute())
    return f"Nor is it a local dataset, here or in {config.lerobot_home()}. {there}"


def explain_empty(root: Path | str) -> str:
    """Return what to do about a dataset without episodes."""
    if is_being_recorded(root):
        return (
            "Those that were saved wait for finalize(): call it, after LeRobotDataset.resume(...) "
            "if the recorder has ended."
        )
    return "Record some, then call finalize()."


def is_being_recorded(root: Path | str) -> bool:
    """Return whether there may be saved episodes that are not in the dataset yet."""
    return isinstance(root, Path) and (root / config.STAGING_FOLDER).is_dir()


def _listed(names: list[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
