# SPDX-License-Identifier: Apache-2.0
"""Dataset repos on the Hugging Face Hub: pin a commit, download only what is asked for."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import huggingface_hub
from huggingface_hub import constants
from huggingface_hub.errors import (
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from robostream.config import CODEBASE_VERSION, lerobot_home
from robostream.errors import MetadataError
from robostream.meta.versions import choose_revision, parse_version

logger = logging.getLogger(__name__)

# The root error of the HTTP library below huggingface_hub, which is not the same in all versions.
HTTP_ERROR: type[Exception] = HfHubHTTPError.__bases__[0]


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
    Without a network (or with `HF_HUB_OFFLINE=1`) what an earlier call downloaded is used.
    """
    wanted = revision or CODEBASE_VERSION
    with _explained(repo_id, wanted):
        ref = wanted if constants.HF_HUB_OFFLINE else _ref(repo_id, wanted, token)
        folder = huggingface_hub.snapshot_download(
            repo_id,
            repo_type="dataset",
            revision=ref,
            allow_patterns=list(patterns),
            cache_dir=lerobot_home() / "hub",
            token=token,
            force_download=force,
        )
    # The cache names a snapshot's folder after its commit.
    path = Path(folder)
    return path, path.name


def _ref(repo_id: str, wanted: str, token: str | None) -> str:
    if parse_version(wanted) is None:
        return wanted
    try:
        refs = huggingface_hub.HfApi(token=token).list_repo_refs(repo_id, repo_type="dataset")
    except HfHubHTTPError:
        raise
    except (HTTP_ERROR, OSError) as error:
        # No answer at all: the download then looks in the cache, or says what is wrong.
        logger.warning("%s: the Hub (%s) is out of reach: %s", repo_id, constants.ENDPOINT, error)
        return wanted
    ref = choose_revision(wanted, [r.name for r in [*refs.branches, *refs.tags]], repo_id)
    if ref != wanted:
        logger.warning("%s has no revision %s; reading %s", repo_id, wanted, ref)
    return ref


@contextmanager
def _explained(repo_id: str, revision: str) -> Iterator[None]:
    home = lerobot_home()
    try:
        yield
    except RepositoryNotFoundError as error:
        raise MetadataError(
            f"{repo_id}: no such dataset on the Hub ({constants.ENDPOINT}), or it "
            f"is private and no token grants access, and no local copy in {home / repo_id}. Check "
            "the name, pass root=... for a local dataset, or log in with: hf auth login"
        ) from error
    except RevisionNotFoundError as error:
        raise MetadataError(
            f"{repo_id}: the Hub has no revision {revision!r} of it; name a branch, tag or commit"
        ) from error
    except LocalEntryNotFoundError as error:
        raise MetadataError(
            f"{repo_id}@{revision}: not in the cache {home / 'hub'}, and the Hub "
            f"({constants.ENDPOINT}) cannot be reached. Check the network, unset "
            "HF_HUB_OFFLINE, or pass root=... for a local dataset."
        ) from error
    except HFValidationError as error:
        raise MetadataError(
            f"{repo_id!r} is no Hub dataset name (owner/name), and there is no local copy in "
            f"{home / repo_id}. Pass root=... for a local dataset."
        ) from error
    except (HTTP_ERROR, OSError) as error:
        raise MetadataError(
            f"{repo_id}@{revision}: the Hub ({constants.ENDPOINT}) did not answer "
            f"as expected: {error}"
        ) from error
