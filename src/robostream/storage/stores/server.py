# SPDX-License-Identifier: Apache-2.0
"""What stores on other machines share: connections, the pace of asking, and counts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from robostream import config
from robostream.errors import StorageError
from robostream.storage.remote.answers import refusal
from robostream.storage.remote.connections import Answer, Connections, server_of
from robostream.storage.remote.http_file import Authorise, HttpFile
from robostream.storage.remote.rate_limit import RateLimit
from robostream.storage.remote.remote_source import RemoteFile, RemoteSource
from robostream.storage.remote.retry import Retrying
from robostream.storage.remote.traffic import Traffic

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
