# SPDX-License-Identifier: Apache-2.0
"""What stores on other machines share: connections, the pace of asking, and counts."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any
from urllib.parse import quote, unquote

from robostream import config
from robostream.errors import NoListingError, StorageError
from robostream.storage.connections import Answer, Connections, server_of
from robostream.storage.http_file import Authorise, HttpFile, refusal
from robostream.storage.location import Location
from robostream.storage.rate_limit import RateLimit
from robostream.storage.remote_source import RemoteFile, RemoteSource
from robostream.storage.retry import Retrying, Traffic

# Listings and other messages are not larger than this.
_MOST_MESSAGE_BYTES = 64 << 20


@lru_cache(maxsize=1)
def connections() -> Connections:
    """Return the connections of this process."""
    return Connections()


class Server:
    """Opens files on one server, and asks it for messages.

    Args:
        traffic: Counts what is asked.
        authorise: What lets us in: the headers for a request to an address.
        login: How a user would be let in, for messages.
    """

    def __init__(self, traffic: Traffic, *, authorise: Authorise, login: str) -> None:
        self._traffic = traffic
        self._authorise = authorise
        self._login = login

    def open(self, url: str, name: str) -> RemoteSource:
        """Return the bytes of the file at an address. Asks nothing yet."""
        file = HttpFile(connections(), url, name=name, authorise=self._authorise, login=self._login)
        return remote_source(file, self._traffic)

    def ask(self, url: str, name: str) -> Answer:
        """Return the answer at an address that is no file: a page of a listing, say."""

        def ask() -> Answer:
            headers = self._authorise("GET", url)
            answer = connections().ask(url, headers, most_bytes=_MOST_MESSAGE_BYTES)
            if answer.status != 200:
                raise refusal(answer, name=name, login=self._login)
            if not answer.is_whole:
                raise StorageError(f"{name}: the server's listing is too long to be one.")
            return answer

        return retrying(server_of(url), self._traffic).until_answered(ask, name)


def remote_source(file: RemoteFile, traffic: Traffic) -> RemoteSource:
    """Return the bytes of a remote file."""
    return RemoteSource(file, retrying(file.server, traffic))


def read_json(answer: Answer, name: str) -> Any:
    """Return what a server answered in JSON."""
    try:
        return json.loads(answer.content)
    except ValueError as error:
        raise StorageError(f"{name}: the server's answer is no JSON ({error}).") from error


def refuse_unknown(options: Mapping[str, Any], known: Sequence[str], url: str) -> None:
    """Raise unless all options are known; their values are secret, their names are not."""
    strangers = sorted(set(options) - set(known))
    if "user" in strangers:
        raise StorageError(
            f"{url}: want no user or password in this address, found one. Pass what lets you in as "
            f"storage_options, by the names {', '.join(known)}."
        )
    if strangers:
        raise StorageError(
            f"{url}: storage_options has {', '.join(strangers)}; known are {', '.join(known)}."
        )


@lru_cache(maxsize=256)
def _pace(server: str) -> RateLimit:
    return RateLimit(config.pace_home(), server)


def retrying(server: str, traffic: Traffic) -> Retrying:
    """Return how a server is asked."""
    return Retrying(_pace(server), traffic, config.remote_retries())


_OPTIONS = ("headers", "user", "query", "token")
_LOGIN = (
    "Write the address as https://user:password@host/..., or pass the headers that let you in: "
    "storage_options={'headers': {'Authorization': ...}}."
)


class WebStore:
    """A folder of a web server that gives byte ranges."""

    def __init__(self, location: Location, traffic: Traffic) -> None:
        refuse_unknown(location.options, _OPTIONS, location.url)
        self._location = location
        self._headers = dict(location.options.get("headers") or {}) | _basic(location.options)
        self._server = Server(traffic, authorise=lambda *_: self._headers, login=_LOGIN)

    def open(self, file: str) -> RemoteSource:
        """Return the bytes of a file. Asks nothing yet."""
        query = self._location.options.get("query")
        url = f"{self._location.url}/{quote(file)}" + (f"?{query}" if query else "")
        return self._server.open(url, self._location.describe(file))

    def sizes(self, folder: str) -> dict[str, int]:
        """Raise NoListingError: web servers list nothing, or each in its own way."""
        raise NoListingError(f"{self._location.describe(folder)}: a web server lists no files.")


def _basic(options: Mapping[str, str]) -> dict[str, str]:
    """Return the header that a user's name and password, or a token, go in."""
    if options.get("token"):
        return {"Authorization": f"Bearer {options['token']}"}
    if not options.get("user"):
        return {}
    name, _, password = options["user"].partition(":")
    pair = f"{unquote(name)}:{unquote(password)}"
    return {"Authorization": "Basic " + base64.b64encode(pair.encode()).decode()}
