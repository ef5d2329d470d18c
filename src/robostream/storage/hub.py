# SPDX-License-Identifier: Apache-2.0
"""Dataset repos on the Hugging Face Hub: which refs they have, and downloading files of one.

huggingface_hub is loaded when it is first needed: local datasets, and their workers, do without.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, unquote

from robostream import config
from robostream.config import hub_endpoint, hub_token, lerobot_home
from robostream.errors import MissingFileError, RobostreamError, StorageError, UnreachableError
from robostream.storage.connections import Answer, checked_headers, origin, server_of
from robostream.storage.http_file import is_transient, refusal
from robostream.storage.http_store import Server, read_json, refuse_unknown, retrying
from robostream.storage.location import Location, join_url, redact
from robostream.storage.remote_source import RemoteSource
from robostream.storage.retry import Traffic, TransientError

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
        raise MissingFileError(
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


_DATASET = re.compile(r"hf://datasets/([^/@]+/[^/@]+)(?:@([^/]+))?(?:/(.*))?")
_BUCKET = re.compile(r"hf://buckets/([^/@]+/[^/@]+)(?:/(.*))?")
_NEXT = re.compile(r'<([^>]+)>\s*;\s*rel="?next"?')
_OPTIONS = ("token", "endpoint")
_LOGIN = "Log in with `hf auth login`, set HF_TOKEN, or pass token=...; the repo may be private."


class HubStore:
    """A dataset repo at one revision, or a bucket; or a folder of either."""

    def __init__(self, location: Location, traffic: Traffic) -> None:
        refuse_unknown(location.options, _OPTIONS, location.url)
        endpoint = str(location.options.get("endpoint") or config.hub_endpoint()).rstrip("/")
        self._location = location
        self._files, self._tree, self._folder = _addresses(location.url, endpoint)
        token = location.options.get("token", None)
        self._token = config.hub_token() if token in (None, True) else token
        self._server = Server(traffic, authorise=self._authorise, login=_LOGIN)

    def open(self, file: str) -> RemoteSource:
        """Return the bytes of a file. Asks nothing yet."""
        url = f"{self._files}/{quote(self._folder + file)}"
        return self._server.open(url, self._location.describe(file))

    def sizes(self, folder: str) -> dict[str, int]:
        """Return the size of every file below a folder."""
        name = self._location.describe(folder)
        url: str | None = f"{self._tree}/{quote(self._folder + folder)}?recursive=true"
        sizes: dict[str, int] = {}
        try:
            while url is not None:
                answer = self._server.ask(url, name)
                for entry in _entries(read_json(answer, name), name):
                    sizes[entry["path"].removeprefix(self._folder)] = int(entry["size"])
                match = _NEXT.search(answer.headers.get("link", ""))
                url = join_url(url, match[1]) if match else None
                if url is not None and origin(url) != origin(self._tree):
                    raise StorageError(
                        f"{name}: the Hub's listing goes on at {redact(url)}, which is another "
                        "server: the token is not sent there. Check HF_ENDPOINT."
                    )
        except MissingFileError:
            return {}  # an empty folder is no folder
        return sizes

    def _authorise(self, *_: str) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {self._token}"} if self._token else {}


def _addresses(url: str, endpoint: str) -> tuple[str, str, str]:
    """Return under which address files lie, under which they are listed, and the folder. Pure."""
    dataset, bucket = _DATASET.fullmatch(url), _BUCKET.fullmatch(url)
    if dataset is not None:
        repo, revision = dataset[1], quote(unquote(dataset[2] or "main"), safe="")
        files = f"{endpoint}/datasets/{repo}/resolve/{revision}"
        tree, folder = f"{endpoint}/api/datasets/{repo}/tree/{revision}", dataset[3]
    elif bucket is not None:
        files, tree = (f"{endpoint}/{p}/{bucket[1]}" for p in ("buckets", "api/buckets"))
        files, tree, folder = f"{files}/resolve", f"{tree}/tree", bucket[2]
    else:
        raise StorageError(
            f"{url}: want hf://datasets/owner/name[@revision][/folder] or "
            "hf://buckets/owner/name[/folder]."
        )
    return files, tree, f"{folder}/" if folder else ""


def _entries(listed: Any, name: str) -> list[dict[str, Any]]:
    try:
        return [entry for entry in listed if entry["type"] == "file"]
    except (TypeError, KeyError) as error:
        raise StorageError(f"{name}: the Hub's listing is not as expected: {error!r}") from error
