# SPDX-License-Identifier: Apache-2.0
"""Which commit of a Hub dataset is read: a version is looked up, a branch or tag is pinned."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from robostream.config import CODEBASE_VERSION
from robostream.errors import MetadataError, StorageError
from robostream.meta.versions import choose_revision, parse_version
from robostream.storage import download, list_refs

logger = logging.getLogger(__name__)


def pin_and_download(
    repo_id: str,
    revision: str | None,
    *,
    patterns: Sequence[str],
    token: str | None,
    force: bool,
) -> tuple[Path, str]:
    """Download the files that match `patterns` and return their folder and the commit read.

    A version such as "v3.0" (the default) is looked up among the repo's branches and tags first.
    """
    wanted = revision or CODEBASE_VERSION
    with as_metadata_error():
        refs = list_refs(repo_id, token) if parse_version(wanted) is not None else None
        ref = wanted if refs is None else choose_revision(wanted, refs, repo_id)
        if ref != wanted:
            logger.warning("%s has no revision %s; reading %s", repo_id, wanted, ref)
        return download(repo_id, ref, patterns=patterns, token=token, force=force)


@contextmanager
def as_metadata_error() -> Iterator[None]:
    """Turn what reading bytes raises into a MetadataError that says the same."""
    try:
        yield
    except StorageError as error:
        raise MetadataError(str(error)) from error.__cause__ or error
