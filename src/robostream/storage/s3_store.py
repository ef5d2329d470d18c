# SPDX-License-Identifier: Apache-2.0
"""Who we are to S3: keys from the usual places, and the signature of each request.

botocore knows the usual places (the environment, profiles, single sign-on, roles of machines and of
containers) and keeps keys fresh that expire. Requests themselves are plain HTTP: through botocore
or s3fs each costs several times the CPU time, and obstore hangs in forked processes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode, urlsplit
from xml.etree import ElementTree

from robostream import config
from robostream.errors import AccessDeniedError, MissingExtraError, StorageError
from robostream.storage.http_store import Server, refuse_unknown
from robostream.storage.location import Location
from robostream.storage.remote_source import RemoteSource
from robostream.storage.retry import Traffic

_REGION = "us-east-1"


class S3Keys:
    """Signs requests; for one bucket.

    Args:
        options: What the user gave: key, secret, token, profile, region, anon, endpoint_url.
        url: The bucket, for messages.
    """

    def __init__(self, options: Mapping[str, Any], url: str) -> None:
        try:
            from botocore.session import Session
        except ImportError as error:
            raise MissingExtraError("botocore", "s3", url) from error
        session = Session(profile=options.get("profile"))
        self._url = url
        self._is_anonymous = bool(options.get("anon"))
        self.region = options.get("region") or session.get_config_variable("region") or _REGION
        named = session.get_scoped_config().get("endpoint_url")
        self.endpoint_url: str | None = options.get("endpoint_url") or config.s3_endpoint() or named
        self._credentials = None if self._is_anonymous else _credentials(session, options)

    def sign(self, method: str, url: str) -> Mapping[str, str]:
        """Return the headers that sign a request."""
        if self._is_anonymous:
            return {}
        if self._credentials is None:
            raise AccessDeniedError(
                f"{self._url}: no keys for S3 are found. Set AWS_ACCESS_KEY_ID and "
                "AWS_SECRET_ACCESS_KEY, or AWS_PROFILE; or pass storage_options={'key': ..., "
                "'secret': ...}, or {'anon': True} for a public bucket."
            )
        from botocore.auth import S3SigV4Auth
        from botocore.awsrequest import AWSRequest

        # A line break after a key or token, as in a file, is none of it.
        keys = self._credentials.get_frozen_credentials()
        stripped = {k: v.strip() for k, v in keys._asdict().items() if isinstance(v, str)}
        request = AWSRequest(method, url)
        S3SigV4Auth(keys._replace(**stripped), "s3", self.region).add_auth(request)
        return dict(request.headers.items())


def _credentials(session: Any, options: Mapping[str, Any]) -> Any:
    if options.get("key"):
        from botocore.credentials import Credentials

        return Credentials(options["key"], options.get("secret"), options.get("token"))
    return session.get_credentials()


_PLACE = re.compile(r"s3a?://([^/]+)(?:/(.*))?")
_OPTIONS = ("key", "secret", "token", "profile", "region", "endpoint_url", "anon", "client_kwargs")
_LOGIN = (
    "Check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE; or pass storage_options="
    "{'key': ..., 'secret': ...}. The keys must be allowed to read the bucket, in its region."
)


class S3Store:
    """A bucket, or a folder of one."""

    def __init__(self, location: Location, traffic: Traffic) -> None:
        refuse_unknown(location.options, _OPTIONS, location.url)
        # As s3fs takes them, which people know.
        extra = location.options.get("client_kwargs") or {}
        options = location.options | {
            name: extra[theirs]
            for name, theirs in (("region", "region_name"), ("endpoint_url", "endpoint_url"))
            if extra.get(theirs)
        }
        match = _PLACE.fullmatch(location.url)
        if match is None:
            raise StorageError(f"{location.url}: want s3://bucket or s3://bucket/folder.")
        bucket, folder = match[1], match[2]
        keys = S3Keys(options, location.url)
        self._location = location
        self._folder = f"{folder}/" if folder else ""
        self._root = _bucket_url(bucket, keys)
        self._server = Server(traffic, authorise=keys.sign, login=_LOGIN)

    def open(self, file: str) -> RemoteSource:
        """Return the bytes of a file. Asks nothing yet."""
        # Signatures want exactly these letters left as they are.
        url = f"{self._root}/{quote(self._folder + file, safe='/-_.~')}"
        return self._server.open(url, self._location.describe(file))

    def sizes(self, folder: str) -> dict[str, int]:
        """Return the size of every file below a folder."""
        name = self._location.describe(folder)
        query = {"list-type": "2", "prefix": f"{self._folder}{folder}/"}
        sizes: dict[str, int] = {}
        while True:
            url = f"{self._root}/?{urlencode(sorted(query.items()), quote_via=quote)}"
            page = _page(self._server.ask(url, name).content, name)
            for entry in page.iterfind("{*}Contents"):
                key = entry.findtext("{*}Key", "").removeprefix(self._folder)
                sizes[key] = int(entry.findtext("{*}Size", "0"))
            token = page.findtext("{*}NextContinuationToken")
            if not token:
                return sizes
            query["continuation-token"] = token


def _bucket_url(bucket: str, keys: S3Keys) -> str:
    """Return the address of a bucket: as a folder of a server, or as a server of its own."""
    if keys.endpoint_url is not None:
        address = urlsplit(keys.endpoint_url)
        return f"{address.scheme}://{address.netloc}{address.path.rstrip('/')}/{bucket}"
    if "." in bucket:
        # Amazon's certificates do not cover such names as a server's.
        return f"https://s3.{keys.region}.amazonaws.com/{bucket}"
    return f"https://{bucket}.s3.{keys.region}.amazonaws.com"


def _page(content: bytes, name: str) -> ElementTree.Element:
    try:
        return ElementTree.fromstring(content)
    except ElementTree.ParseError as error:
        raise StorageError(f"{name}: the bucket's listing is no XML ({error}).") from error
