# SPDX-License-Identifier: Apache-2.0
"""Dataset repos on the Hugging Face Hub: which refs they have, and downloading files of one.

huggingface_hub is loaded when it is first needed: local datasets, and their workers, do without.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from robostream.config import hub_endpoint, hub_token, lerobot_home
from robostream.errors import (
    MissingFileError,
    MissingRevisionError,
    RobostreamError,
    StorageError,
    UnreachableError,
)
from robostream.storage.files.names import redact
from robostream.storage.remote.answers import is_transient, refusal
from robostream.storage.remote.connections import Answer, checked_headers, server_of
from robostream.storage.remote.retry import TransientError
from robostream.storage.remote.traffic import Traffic
from robostream.storage.stores.server import retrying

T = TypeVar("T")

logger = logging.getLogger(__name__)


def list_refs(repo_id: str, token: str | None) -> list[str] | None:
    """Return the names of a repo's branches and tags; None if the Hub gives no answer at all."""
    from huggingface_hub import HfApi, constants, errors

    if constants.HF_HUB_OFFLINE:
        return None
    with _explained(repo_id, "any"):

        def ask() -> Any:
            with _passing():
                return HfApi(token=_checked(token, repo_id)).list_repo_refs(
                    repo_id, repo_type="dataset"
                )

        try:
            refs = _until_answered(ask, repo_id)
        except (errors.HfHubHTTPError, StorageError):
            raise
        except (_http_error(), OSError) as error:
            # The download then looks in the cache, or says what is wrong.
            hub, why = redact(constants.ENDPOINT), _words(error)
            logger.warning("%s: the Hub (%s) is out of reach: %s", repo_id, hub, why)
            return None
    return [ref.name for ref in [*refs.branches, *refs.tags]]


def download(
    repo_id: str, revision: str, *, patterns: Sequence[str], token: str | None, force: bool
) -> tuple[Path, str]:
    """Download the files that match `patterns` and return their folder and the commit read.

    Without a network (or with `HF_HUB_OFFLINE=1`) what an earlier call downloaded is used.
    """
    from huggingface_hub import snapshot_download

    def ask() -> str:
        with _passing():
            return snapshot_download(
                repo_id,
                repo_type="dataset",
                revision=revision,
                allow_patterns=list(patterns),
                cache_dir=lerobot_home() / "hub",
                token=_checked(token, repo_id),
                force_download=force,
            )

    with _explained(repo_id, revision):
        folder = _until_answered(ask, f"{repo_id}@{revision}")
    # The cache names a snapshot's folder after its commit.
    path = Path(folder)
    return path, path.name


class _Redacting(logging.Filter):
    """Takes signatures out of the addresses that the HTTP library tells of."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Rewrite a record; let all pass."""
        record.msg, record.args = redact(record.getMessage()), None
        return True


def _until_answered(ask: Callable[[], T], name: str) -> T:
    library = logging.getLogger(_http_error().__module__.split(".")[0])
    if not any(isinstance(known, _Redacting) for known in library.filters):
        library.addFilter(_Redacting())
    return retrying(server_of(hub_endpoint()), Traffic()).until_answered(ask, name)


@contextmanager
def _passing() -> Iterator[None]:
    """Raise Passing where the Hub, or the way to it, fails as it may for a moment."""
    from huggingface_hub import errors

    try:
        yield
    except errors.HfHubHTTPError as error:
        response = getattr(error, "response", None)
        if response is None or not is_transient(response.status_code):
            raise
        headers = {name.lower(): value for name, value in response.headers.items()}
        answer = Answer(response.status_code, headers, b"", is_whole=True)
        raise refusal(answer, name="the Hub", login="") from None
    except (_http_error(), OSError) as error:
        # A connection that is refused is no hiccup: there is no network, or another address.
        if not _is_hiccup(error):
            raise
        raise TransientError(f"{type(error).__name__}: {error}") from None


def _is_hiccup(error: BaseException | None) -> bool:
    """Return whether a connection broke or fell silent; the libraries' names for that agree."""
    while error is not None:
        if re.search("Read|RemoteProtocol|Reset|Chunked|Incomplete", type(error).__name__):
            return True
        error = error.__cause__ or error.__context__
    return False


def _http_error() -> type[Exception]:
    """Return the root error of the HTTP library below huggingface_hub; versions differ in it."""
    from huggingface_hub.errors import HfHubHTTPError

    return HfHubHTTPError.__bases__[0]


@contextmanager
def _explained(repo_id: str, revision: str) -> Iterator[None]:
    """Raise what the library's errors mean; not chained to them, as they may hold secrets."""
    from huggingface_hub import constants, errors

    hub = redact(constants.ENDPOINT)
    try:
        yield
    except RobostreamError:
        raise
    except errors.RepositoryNotFoundError:
        raise MissingFileError(
            f"{repo_id}: no such dataset on the Hub ({hub}), or it is private and no token grants "
            "access. Check the name, or log in with `hf auth login`."
        ) from None
    except errors.RevisionNotFoundError:
        raise MissingRevisionError(
            f"{repo_id}: the Hub has no revision {revision!r} of it; name a branch, tag or commit."
        ) from None
    except errors.LocalEntryNotFoundError:
        raise UnreachableError(
            f"{repo_id}@{revision}: not in the cache {lerobot_home() / 'hub'}, and the Hub ({hub}) "
            "cannot be reached. Check the network, or unset HF_HUB_OFFLINE."
        ) from None
    except errors.HFValidationError:
        raise StorageError(f"{redact(repo_id)!r} is no Hub dataset name (owner/name).") from None
    except (_http_error(), OSError, ValueError) as error:
        said = _words(error)
        raise UnreachableError(
            f"{repo_id}@{revision}: the Hub ({hub}) did not answer as expected: {said}."
        ) from None


def _words(error: Exception) -> str:
    """Return what an error of the library says that is no secret."""
    # A ValueError shows the endpoint, the token or the header that is not as it should be.
    return type(error).__name__ if isinstance(error, ValueError) else redact(str(error))


def _checked(token: str | None, repo_id: str) -> str | None:
    """Return a token that a header can hold, stripped; the library shows one that it refuses."""
    used = token if isinstance(token, str) else hub_token() or ""
    stripped = checked_headers({"Authorization": used}, repo_id)["Authorization"]
    return stripped if isinstance(token, str) else token
