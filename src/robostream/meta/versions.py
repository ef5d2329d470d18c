# SPDX-License-Identifier: Apache-2.0
"""Which codebase versions can be read, and which Hub revision to take. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from robostream.config import CODEBASE_VERSION
from robostream.errors import (
    BackwardCompatibilityError,
    CompatibilityError,
    ForwardCompatibilityError,
)

CONVERTER = "python -m lerobot.scripts.convert_dataset_v21_to_v30 --repo-id=<repo>"

_VERSION = re.compile(r"v?(\d+)\.(\d+)(?:\.\d+)?")


def parse_version(text: str) -> tuple[int, int] | None:
    """Return (major, minor) of "v3.0" or "3.0.1", or None if the text is no version."""
    match = _VERSION.fullmatch(text.strip())
    return (int(match[1]), int(match[2])) if match else None


def check_version(found: str, where: str) -> None:
    """Raise if a dataset of version `found` cannot be read as v3.0."""
    version = parse_version(found)
    if version is None:
        raise CompatibilityError(
            f"{where}: codebase_version is {found!r}, which is no version; this reader speaks "
            f"{CODEBASE_VERSION}. Was info.json edited by hand?"
        )
    _compare(version, found, where)


def choose_revision(wanted: str, refs: Sequence[str], where: str) -> str:
    """Return the branch or tag of a Hub repo to read for the version `wanted`.

    A `wanted` that is no version (a branch such as "main", a commit) is returned as it is. Else the
    exact version is taken, else the greatest of the same major version below it.
    """
    version = parse_version(wanted)
    if version is None or wanted in refs:
        return wanted
    by_version = {v: ref for ref in refs if (v := parse_version(ref)) is not None}
    if not by_version:
        raise CompatibilityError(
            f"{where}: wanted revision {wanted}, but the repo has no version tag at all (found "
            f"{', '.join(sorted(refs)) or 'no refs'}). Pass revision='main' to read it as it is, "
            f"or tag it with: hf repo tag create {where} {CODEBASE_VERSION} --repo-type dataset"
        )
    usable = [v for v in by_version if v[0] == version[0] and v[1] <= version[1]]
    if usable:
        return by_version[max(usable)]
    newer = [v for v in by_version if v > version]
    best = min(newer) if newer else max(by_version)
    _compare(best, by_version[best], where)
    raise ForwardCompatibilityError(
        f"{where}: wanted revision {wanted}, but the repo only has newer ones, the first of them "
        f"{by_version[best]}. Pass revision={by_version[best]!r}."
    )


def _compare(version: tuple[int, int], found: str, where: str) -> None:
    ours = parse_version(CODEBASE_VERSION)
    assert ours is not None
    if version[0] < ours[0]:
        convert = (
            f"Convert it with LeRobot: {CONVERTER}"
            if version == (2, 1)
            else "Convert it to v2.1 with the LeRobot release of its time, then to v3.0"
        )
        raise BackwardCompatibilityError(
            f"{where}: the dataset has version {found}; this reader speaks {CODEBASE_VERSION}. "
            f"{convert}."
        )
    if version > ours:
        raise ForwardCompatibilityError(
            f"{where}: the dataset has version {found}, newer than the {CODEBASE_VERSION} this "
            "reader speaks. Update robostream, or read an older revision of the dataset."
        )
