# SPDX-License-Identifier: Apache-2.0
"""Where a dataset is read from: a folder, a URL, or a pinned commit of a Hub repo.

Also decides which codebase versions can be read, and explains what was found instead of a dataset.
"""

from __future__ import annotations

import functools
import logging
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from robostream import config
from robostream.config import CODEBASE_VERSION
from robostream.errors import (
    BackwardCompatibilityError,
    CompatibilityError,
    ForwardCompatibilityError,
    MetadataError,
    StorageError,
    UnreachableError,
)
from robostream.storage import CacheSettings, Location, as_location, parse_repo_url

logger = logging.getLogger(__name__)

_CONVERTER = "convert_dataset_v21_to_v30 --repo-id=<repo>"
CONVERTER = (
    f"python -m lerobot.datasets.v30.{_CONVERTER} in LeRobot 0.4, "
    f"python -m lerobot.scripts.{_CONVERTER} in 0.6"
)

_SUPPORTED = ", ".join(reversed(config.READABLE_VERSIONS))
_VERSION = re.compile(r"v?(\d+)\.(\d+)(?:\.\d+)?")
_WANTED = "Give the folder that holds meta/, data/ and videos/."
_MOST_NAMED = 3
# A message does not list a folder of very many files to its end.
_MOST_ENTRIES = 1000


def locate_dataset(
    repo_id: str,
    root: str | Path | None,
    revision: str | None,
    *,
    force: bool,
    token: str | None,
    options: dict[str, Any] | None,
    cache: CacheSettings | None,
) -> tuple[Location, Location, str | None]:
    """Return the locations of meta/ and of data/ and videos/, and the pinned revision."""
    # A Hub dataset has its metadata downloaded.
    repo = None if root is None else parse_repo_url(str(root))
    if root is None:
        local = config.lerobot_home() / repo_id
        # An early LeRobot mixed revisions in its mirrors; they are read only if root names them.
        is_old_mirror = (local / ".cache" / "huggingface" / "download").is_dir()
        if (local / config.INFO_PATH).is_file() and not is_old_mirror:
            root = local
    if root is not None and repo is None:
        location = as_location(root, options, cache)
        return location, location, revision
    name, named_revision = repo or (repo_id, None)
    try:
        folder, commit = pin_and_download(
            name, named_revision or revision, patterns=["meta/**"], token=token, force=force
        )
    except MetadataError as error:
        if repo is not None or revision is not None:
            raise
        raise MetadataError(
            f"{error} Nor is it a local dataset, here or in {config.lerobot_home()}. "
            f"{explain_missing(Path(name).absolute())}"
        ) from error.__cause__
    access = {} if token is None else {"token": token}
    url = f"hf://datasets/{name}@{commit}"
    return as_location(folder), as_location(url, access | (options or {}), cache), commit


def pin_and_download(
    repo_id: str, revision: str | None, *, patterns: Sequence[str], token: str | None, force: bool
) -> tuple[Path, str]:
    """Download the files that match `patterns`; return their folder and their commit.

    A version such as "v3.0" is first looked up among the repo's branches and tags. By default, the
    newest version that can be read is taken.
    """
    from robostream.storage import download, list_refs  # not needed for local datasets

    wanted = revision or CODEBASE_VERSION
    fetch = functools.partial(download, patterns=patterns, token=token, force=force)
    with storage_errors_as_metadata_errors():
        refs = list_refs(repo_id, token) if parse_version(wanted) is not None else None
        if refs is None:
            return _download_cached(repo_id, revision, fetch)
        usable = [version for version in config.READABLE_VERSIONS if version in refs]
        newest = usable[0] if revision is None and usable else None
        ref = newest or choose_revision(wanted, refs, repo_id)
        if ref != wanted:
            logger.warning("%s has no revision %s; reading %s", repo_id, wanted, ref)
        return fetch(repo_id, ref)


def _download_cached(
    repo_id: str, revision: str | None, fetch: Callable[[str, str], tuple[Path, str]]
) -> tuple[Path, str]:
    """Download a revision; without one, use the newest version that the cache has."""
    errors = []
    for ref in config.READABLE_VERSIONS if revision is None else [revision]:
        try:
            return fetch(repo_id, ref)
        except UnreachableError as error:
            errors.append(error)
    raise errors[0]


@contextmanager
def storage_errors_as_metadata_errors() -> Iterator[None]:
    """Re-raise StorageError as MetadataError with the same message."""
    try:
        yield
    except StorageError as error:
        raise MetadataError(str(error)) from error.__cause__ or error


def parse_version(text: str) -> tuple[int, int] | None:
    """Return (major, minor) of "v3.0" or "3.0.1"; None if the text is not a version. Pure."""
    match = _VERSION.fullmatch(text.strip())
    return (int(match[1]), int(match[2])) if match else None


def check_version(found: str, where: str) -> tuple[int, int]:
    """Return (major, minor) of a version that can be read, or raise CompatibilityError. Pure."""
    version = parse_version(found)
    if version is None:
        raise CompatibilityError(
            f"{where}: codebase_version is {found!r}, which is no version; this reader supports "
            f"{_SUPPORTED}. Was info.json edited by hand?"
        )
    _check_supported(version, found, where)
    return version


def choose_revision(wanted: str, refs: Sequence[str], where: str) -> str:
    """Return the branch or tag of a Hub repo to read for `wanted`. Pure.

    A version is read exactly, or else as the greatest one below it of the same major version. A
    branch such as "main", or a commit, is returned as it is.
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
    _check_supported(best, by_version[best], where)
    kind = ForwardCompatibilityError if newer else BackwardCompatibilityError
    raise kind(
        f"{where}: wanted revision {wanted}, but the repo only has {'newer' if newer else 'older'} "
        f"ones, the nearest of them {by_version[best]}. Pass revision={by_version[best]!r}."
    )


def _check_supported(version: tuple[int, int], found: str, where: str) -> None:
    supported = [parse_version(text) for text in config.READABLE_VERSIONS]
    if version in supported:
        return
    if version < (3, 0):
        raise BackwardCompatibilityError(
            f"{where}: the dataset has version {found}; this reader supports {_SUPPORTED}. Convert "
            "it to v2.1 with the LeRobot release of its time."
        )
    raise ForwardCompatibilityError(
        f"{where}: the dataset has version {found}, newer than the {CODEBASE_VERSION} that this "
        "reader supports. Update robostream, or read an older revision of the dataset."
    )


def explain_missing(root: Path | str) -> str:
    """Return what was found instead of a dataset, and what to do."""
    if not isinstance(root, Path):
        return _WANTED
    try:
        if not root.is_dir():
            return f"There is {'a file' if root.exists() else 'nothing'} at {root}. {_WANTED}"
        if (root.parent / config.INFO_PATH).is_file():
            return f"The folder above it is a dataset: point root at {root.parent}."
        names = sorted(entry.name for entry in islice(os.scandir(root), _MOST_ENTRIES))
        below = [name for name in names if (root / name / config.INFO_PATH).is_file()]
    except OSError as error:
        return f"{root} cannot be read: {error.strerror}. {_WANTED}"
    if below:
        return f"There are datasets below {root}: {shorten_names(below)}. Give one of them."
    return f"The folder {f'holds {shorten_names(names)}' if names else 'is empty'}. {_WANTED}"


def explain_empty(root: Path | str) -> str:
    """Return what to do about a dataset without episodes."""
    if is_being_recorded(root):
        return (
            "Its saved episodes wait for finalize(): call it, after LeRobotDataset.resume(...) "
            "if the recorder has ended."
        )
    return "Record some, then call finalize()."


def is_being_recorded(root: Path | str) -> bool:
    """Return whether there may be saved episodes that are not in the dataset yet."""
    return isinstance(root, Path) and (root / config.STAGING_FOLDER).is_dir()


def shorten_names(names: Sequence[str], most: int = _MOST_NAMED) -> str:
    """Return names as text, at most the first few. Pure."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
