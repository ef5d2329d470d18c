# SPDX-License-Identifier: Apache-2.0
"""Files below an address of a plain HTTP server."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from urllib.parse import quote, unquote

from robostream.errors import NoListingError
from robostream.storage.files.location import Location
from robostream.storage.remote.remote_source import RemoteSource
from robostream.storage.remote.traffic import Traffic
from robostream.storage.stores.server import Server, refuse_unknown

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
