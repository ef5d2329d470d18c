# SPDX-License-Identifier: Apache-2.0
"""Requests that all HTTP stores share, and the store of a plain web server."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any
from urllib.parse import quote, unquote

from robostream.errors import NoListingError, StorageError
from robostream.storage.connections import Connections, HttpResponse, server_of
from robostream.storage.http_file import Authorize, HttpFile, response_error
from robostream.storage.location import Location
from robostream.storage.remote_source import RemoteSource
from robostream.storage.retry import Traffic, retry_policy

# The largest listing or other message.
_MAX_MESSAGE_BYTES = 64 << 20
_OPTIONS = ("headers", "user", "query", "token")
_LOGIN = (
    "Write the address as https://user:password@host/..., or pass headers that grant access: "
    "storage_options={'headers': {'Authorization': ...}}."
)


@lru_cache(maxsize=1)
def connections() -> Connections:
    """Return the connection pool of this process."""
    return Connections()


class HttpServer:
    """Opens files on one server and requests its listings.

    Args:
        traffic: Counts requests.
        authorize: Returns the headers that authorize a request.
        login: How a user gains access, for messages.
    """

    def __init__(self, traffic: Traffic, *, authorize: Authorize, login: str) -> None:
        self._traffic = traffic
        self._authorize = authorize
        self._login = login

    def open(self, url: str, name: str) -> RemoteSource:
        """Return the file at a URL. Sends nothing yet."""
        file = HttpFile(connections(), url, name=name, authorize=self._authorize, login=self._login)
        return RemoteSource(file, self._traffic)

    def get(self, url: str, name: str) -> HttpResponse:
        """Return the complete response to a GET request that is not for a file."""

        def send() -> HttpResponse:
            headers = self._authorize("GET", url)
            response = connections().request(url, headers, max_bytes=_MAX_MESSAGE_BYTES)
            if response.status != 200:
                raise response_error(response, name=name, login=self._login)
            if not response.is_complete:
                raise StorageError(f"{name}: the server's listing is too long.")
            return response

        return retry_policy(server_of(url), self._traffic).call(send, name)


def read_json(response: HttpResponse, name: str) -> Any:
    """Return the JSON value of a response."""
    try:
        return json.loads(response.content)
    except ValueError as error:
        raise StorageError(f"{name}: the server's response is not JSON ({error}).") from error


def check_options(options: Mapping[str, Any], known: Sequence[str], url: str) -> None:
    """Raise if an option is unknown; show its name, never its value."""
    unknown = sorted(set(options) - set(known))
    if "user" in unknown:
        raise StorageError(
            f"{url}: want no user or password in this address, found one. Pass credentials as "
            f"storage_options, by the names {', '.join(known)}."
        )
    if unknown:
        raise StorageError(
            f"{url}: storage_options has {', '.join(unknown)}; known are {', '.join(known)}."
        )


class WebStore:
    """A folder of a web server that supports byte ranges."""

    def __init__(self, location: Location, traffic: Traffic) -> None:
        check_options(location.options, _OPTIONS, location.url)
        headers = dict(location.options.get("headers") or {}) | _authorization(location.options)
        self._location = location
        self._server = HttpServer(traffic, authorize=lambda *_: headers, login=_LOGIN)

    def open(self, file: str) -> RemoteSource:
        """Return a file. Sends nothing yet."""
        query = self._location.options.get("query")
        url = f"{self._location.url}/{quote(file)}" + (f"?{query}" if query else "")
        return self._server.open(url, self._location.describe(file))

    def list_files(self, folder: str) -> dict[str, int]:
        """Raise NoListingError: web servers have no common listing format."""
        raise NoListingError(f"{self._location.describe(folder)}: a web server lists no files.")


def _authorization(options: Mapping[str, str]) -> dict[str, str]:
    if options.get("token"):
        return {"Authorization": f"Bearer {options['token']}"}
    if not options.get("user"):
        return {}
    name, _, password = options["user"].partition(":")
    pair = f"{unquote(name)}:{unquote(password)}"
    return {"Authorization": "Basic " + base64.b64encode(pair.encode()).decode()}
