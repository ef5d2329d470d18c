# SPDX-License-Identifier: Apache-2.0
"""Hugging Face Hub: range reads of repos and buckets, refs of a repo, downloads, uploads.

huggingface_hub is imported on demand: local datasets and their workers do not need it.
"""

from __future__ import annotations

import json
import logging
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, unquote

from robostream import config
from robostream.errors import (
    AccessDeniedError,
    MissingFileError,
    MissingRevisionError,
    RobostreamError,
    StorageError,
    UnreachableError,
)
from robostream.storage.connections import HttpResponse, check_headers, origin, server_of
from robostream.storage.http_store import HttpStore, response_error
from robostream.storage.location import Location, join_url, redact
from robostream.storage.retry import Traffic, TransientError, retry_policy

T = TypeVar("T")

logger = logging.getLogger(__name__)

_URL = re.compile(
    r"hf://(?:(datasets/[^/@]+/[^/@]+)(?:@([^/]+))?|(buckets/[^/@]+/[^/@]+))(?:/(.*))?"
)
_NEXT = re.compile(r'<([^>]+)>\s*;\s*rel="?next"?')


class HubStore(HttpStore):
    """A dataset repo at one revision, or a bucket; or a folder of either."""

    OPTIONS = ("token", "endpoint")
    LOGIN = "Log in with `hf auth login`, set HF_TOKEN, or pass token=...; the repo may be private."

    def __init__(self, location: Location, traffic: Traffic) -> None:
        super().__init__(location, traffic)
        endpoint = str(location.options.get("endpoint") or config.hub_endpoint()).rstrip("/")
        match = _URL.fullmatch(location.url)
        if match is None:
            raise StorageError(
                f"{location.url}: want hf://datasets/owner/name[@revision][/folder] or "
                "hf://buckets/owner/name[/folder]."
            )
        dataset, revision, bucket, folder = match.groups()
        at = "/" + quote(unquote(revision or "main"), safe="") if dataset else ""
        self._files = f"{endpoint}/{dataset or bucket}/resolve{at}"
        self._tree = f"{endpoint}/api/{dataset or bucket}/tree{at}"
        self._folder = f"{folder}/" if folder else ""
        token = location.options.get("token", None)
        self._token = config.hub_token() if token in (None, True) else token

    def url_of(self, file: str) -> str:
        """Return the URL of a file. Pure."""
        return f"{self._files}/{quote(self._folder + file)}"

    def authorize(self, *_: str) -> Mapping[str, str]:
        """Return the header with the token."""
        return {"Authorization": f"Bearer {self._token}"} if self._token else {}

    def list_files(self, folder: str) -> dict[str, int]:
        """Return the size of every file below a folder."""
        name = self._location.describe(folder)
        url: str | None = f"{self._tree}/{quote(self._folder + folder)}?recursive=true"
        sizes: dict[str, int] = {}
        try:
            while url is not None:
                response = self.get(url, name)
                try:
                    for entry in json.loads(response.content):
                        if entry["type"] == "file":
                            sizes[entry["path"].removeprefix(self._folder)] = int(entry["size"])
                except (ValueError, TypeError, KeyError) as error:
                    raise StorageError(
                        f"{name}: the Hub's listing is not as expected: {error!r}"
                    ) from error
                match = _NEXT.search(response.headers.get("link", ""))
                url = join_url(url, match[1]) if match else None
                if url is not None and origin(url) != origin(self._tree):
                    raise StorageError(
                        f"{name}: the Hub's listing continues at {redact(url)}, which is another "
                        "server: the token is not sent there. Check HF_ENDPOINT."
                    )
        except MissingFileError:
            return {}  # the Hub has no empty folders
        return sizes


def list_refs(repo_id: str, token: str | None) -> list[str] | None:
    """Return the names of a repo's branches and tags; None if the Hub cannot be reached."""
    from huggingface_hub import HfApi, constants, errors

    if constants.HF_HUB_OFFLINE:
        return None

    api = HfApi(token=_check_token(token, repo_id))
    with _translated_errors(repo_id, "any"):
        try:
            refs = _call_hub(partial(api.list_repo_refs, repo_id, repo_type="dataset"), repo_id)
        except (errors.HfHubHTTPError, StorageError):
            raise
        except (_http_error(), OSError) as error:
            # The download then uses the cache, or raises.
            hub, why = redact(constants.ENDPOINT), _error_text(error)
            logger.warning("%s: the Hub (%s) is out of reach: %s", repo_id, hub, why)
            return None
    return [ref.name for ref in [*refs.branches, *refs.tags]]


def download(
    repo_id: str, revision: str, *, patterns: Sequence[str], token: str | None, force: bool
) -> tuple[Path, str]:
    """Download the files that match `patterns`; return their folder and the commit.

    Without a network, or with `HF_HUB_OFFLINE=1`, uses what an earlier call downloaded.
    """
    from huggingface_hub import snapshot_download

    send = partial(
        snapshot_download,
        repo_id,
        repo_type="dataset",
        revision=revision,
        allow_patterns=list(patterns),
        cache_dir=config.lerobot_home() / "hub",
        token=_check_token(token, repo_id),
        force_download=force,
    )
    with _translated_errors(repo_id, revision):
        path = Path(_call_hub(send, f"{repo_id}@{revision}"))
    return path, path.name  # a snapshot's folder is named after its commit


def upload(
    repo_id: str,
    folder: Path,
    *,
    branch: str | None,
    private: bool | None,
    allow_patterns: list[str] | str | None,
    ignore_patterns: list[str],
    readme: str | None,
    tag: str | None,
    token: str | None,
) -> None:
    """Upload a folder to a dataset repo, which is created if it is missing.

    A second call after an interruption continues the upload. `readme` is written next and the tag
    is moved last, so whoever reads the tag sees the former commit until everything is there.
    """
    from huggingface_hub import HfApi, errors

    api = HfApi(config.hub_endpoint(), token=_check_token(token, repo_id))
    repo: dict[str, Any] = {"repo_id": repo_id, "repo_type": "dataset"}
    # huggingface_hub 2 has one method for small and large folders; 1 warns that it will.
    upload_folder = getattr(api, "upload_large_folder", api.upload_folder)
    with _translated_errors(repo_id, branch or "main"), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        api.create_repo(**repo, private=private, exist_ok=True)
        if branch is not None:
            api.create_branch(**repo, branch=branch, exist_ok=True)
        upload_folder(
            **repo,
            folder_path=folder,
            revision=branch,
            allow_patterns=allow_patterns,
            ignore_patterns=ignore_patterns,
        )
        if readme is not None:
            api.upload_file(
                **repo, path_or_fileobj=readme.encode(), path_in_repo="README.md", revision=branch
            )
        if tag is not None:
            with suppress(errors.RevisionNotFoundError):
                api.delete_tag(**repo, tag=tag)
            api.create_tag(**repo, tag=tag, revision=branch)


class _RedactingFilter(logging.Filter):
    """Replaces log records of the HTTP library that show secrets in a URL."""

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        redacted = {"msg": redact(text), "args": None}
        if redacted["msg"] == text:
            return True
        # The replacement passes this filter again, which then finds nothing to redact.
        logging.getLogger(record.name).handle(logging.makeLogRecord(vars(record) | redacted))
        return False


def _call_hub(send: Callable[[], T], name: str) -> T:
    """Return what `send` returns, with retries; redact the HTTP library's log."""
    from huggingface_hub import errors

    library = logging.getLogger(_http_error().__module__.split(".")[0])
    if not any(isinstance(known, _RedactingFilter) for known in library.filters):
        library.addFilter(_RedactingFilter())

    def attempt() -> T:
        try:
            return send()
        except errors.HfHubHTTPError as error:
            response = getattr(error, "response", None)
            if response is None:
                raise
            headers = {name.lower(): value for name, value in response.headers.items()}
            answer = HttpResponse(response.status_code, headers, b"", is_complete=True)
            failure = response_error(answer, name="the Hub", login="")
            if not isinstance(failure, TransientError):
                raise
            raise failure from None
        except (_http_error(), OSError) as error:
            # A refused connection is not transient: there is no network, or the address is wrong.
            if not _is_interrupted(error):
                raise
            raise TransientError(f"{type(error).__name__}: {error}") from None

    return retry_policy(server_of(config.hub_endpoint()), Traffic()).call(attempt, name)


def _is_interrupted(error: BaseException | None) -> bool:
    """Return whether a connection broke or fell silent, by names that the libraries share."""
    while error is not None:
        if re.search("Read|RemoteProtocol|Reset|Chunked|Incomplete", type(error).__name__):
            return True
        error = error.__cause__ or error.__context__
    return False


def _http_error() -> type[Exception]:
    """Return the base error of huggingface_hub's HTTP library, which depends on the version."""
    from huggingface_hub.errors import HfHubHTTPError

    return HfHubHTTPError.__bases__[0]


@contextmanager
def _translated_errors(repo_id: str, revision: str) -> Iterator[None]:
    """Raise ours for the library's errors; unchained, because theirs may hold secrets."""
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
            f"{repo_id}@{revision}: not in the cache {config.lerobot_home() / 'hub'}, and the Hub "
            f"({hub}) cannot be reached. Check the network, or unset HF_HUB_OFFLINE."
        ) from None
    except errors.HFValidationError:
        name = redact(repo_id)
        raise StorageError(f"{name!r} is not a Hub dataset name (owner/name).") from None
    except (_http_error(), OSError, ValueError, RuntimeError) as error:
        status = getattr(getattr(error, "response", None), "status_code", None)
        if status in (401, 403):
            raise AccessDeniedError(
                f"{repo_id}: the Hub ({hub}) denies access: {_error_text(error)}. Log in with `hf "
                "auth login`, or pass a token that grants it; to write, the token needs that right."
            ) from None
        raise UnreachableError(
            f"{repo_id}@{revision}: unexpected response of the Hub ({hub}): {_error_text(error)}."
        ) from None


def _error_text(error: Exception) -> str:
    """Return the text of a library's error, without secrets."""
    # A ValueError may show the endpoint, the token or a header.
    return type(error).__name__ if isinstance(error, ValueError) else redact(str(error))


def _check_token(token: str | None, repo_id: str) -> str | None:
    """Return a stripped token that a header can hold; the library would print an invalid one."""
    used = token if isinstance(token, str) else config.hub_token() or ""
    stripped = check_headers({"Authorization": used}, repo_id)["Authorization"]
    return stripped if isinstance(token, str) else token
