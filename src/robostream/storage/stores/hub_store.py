# SPDX-License-Identifier: Apache-2.0
"""Dataset repos and buckets of the Hugging Face Hub, read by range."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, unquote

from robostream import config
from robostream.errors import MissingFileError, StorageError
from robostream.storage.files.location import Location
from robostream.storage.files.names import join_url, redact
from robostream.storage.remote.connections import origin
from robostream.storage.remote.remote_source import RemoteSource
from robostream.storage.remote.traffic import Traffic
from robostream.storage.stores.server import Server, read_json, refuse_unknown

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
