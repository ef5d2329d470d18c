# SPDX-License-Identifier: Apache-2.0
"""S3 buckets, at Amazon or elsewhere, with signed requests.

botocore finds credentials in the usual places (environment, profiles, single sign-on, roles of
machines and containers) and renews those that expire. The requests themselves are plain HTTP: with
botocore or s3fs each costs several times the CPU time, and obstore hangs in forked processes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import quote, urlencode, urlsplit
from xml.etree import ElementTree

from robostream import config
from robostream.errors import AccessDeniedError, MissingExtraError, StorageError
from robostream.storage.http_store import HttpStore
from robostream.storage.location import Location
from robostream.storage.retry import Traffic

_DEFAULT_REGION = "us-east-1"
_URL = re.compile(r"s3a?://([^/]+)(?:/(.*))?")


class S3Store(HttpStore):
    """A bucket, or a folder of one."""

    # fmt: off
    OPTIONS = (
        "key", "secret", "token", "profile", "region", "endpoint_url", "anon", "client_kwargs",
    )
    # fmt: on
    LOGIN = (
        "Check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE; or pass "
        "storage_options={'key': ..., 'secret': ...}. The keys must be allowed to read the "
        "bucket, in its region."
    )

    def __init__(self, location: Location, traffic: Traffic) -> None:
        super().__init__(location, traffic)
        # s3fs takes these two as client_kwargs.
        extra = location.options.get("client_kwargs") or {}
        options = location.options | {
            name: extra[theirs]
            for name, theirs in (("region", "region_name"), ("endpoint_url", "endpoint_url"))
            if extra.get(theirs)
        }
        match = _URL.fullmatch(location.url)
        if match is None:
            raise StorageError(f"{location.url}: want s3://bucket or s3://bucket/folder.")
        try:
            from botocore.credentials import Credentials
            from botocore.session import Session
        except ImportError as error:
            raise MissingExtraError("botocore", "s3", location.url) from error
        session = Session(profile=options.get("profile"))
        region = options.get("region") or session.get_config_variable("region")
        self._region = region or _DEFAULT_REGION
        profile_url = session.get_scoped_config().get("endpoint_url")
        endpoint = options.get("endpoint_url") or config.s3_endpoint() or profile_url
        self._credentials = None
        if options.get("key"):
            keys = options["key"], options.get("secret"), options.get("token")
            self._credentials = Credentials(*keys)
        elif not options.get("anon"):
            self._credentials = session.get_credentials()
        self._folder = f"{match[2]}/" if match[2] else ""
        self._root = _bucket_url(match[1], self._region, endpoint)

    def url_of(self, file: str) -> str:
        """Return the URL of a file. Pure."""
        # Signatures require exactly these characters unescaped.
        return f"{self._root}/{quote(self._folder + file, safe='/-_.~')}"

    def authorize(self, method: str, url: str) -> Mapping[str, str]:
        """Return the headers that sign a request."""
        if self._location.options.get("anon"):
            return {}
        if self._credentials is None:
            raise AccessDeniedError(
                f"{self._location.url}: no keys for S3 are found. Set AWS_ACCESS_KEY_ID and "
                "AWS_SECRET_ACCESS_KEY, or AWS_PROFILE; or pass storage_options={'key': ..., "
                "'secret': ...}, or {'anon': True} for a public bucket."
            )
        from botocore.auth import S3SigV4Auth
        from botocore.awsrequest import AWSRequest

        # Keys read from a file may end in a line break.
        keys = self._credentials.get_frozen_credentials()
        stripped = {k: v.strip() for k, v in keys._asdict().items() if isinstance(v, str)}
        request = AWSRequest(method, url)
        S3SigV4Auth(keys._replace(**stripped), "s3", self._region).add_auth(request)
        return dict(request.headers.items())

    def list_files(self, folder: str) -> dict[str, int]:
        """Return the size of every file below a folder."""
        name = self._location.describe(folder)
        query = {"list-type": "2", "prefix": f"{self._folder}{folder}/"}
        sizes: dict[str, int] = {}
        while True:
            url = f"{self._root}/?{urlencode(sorted(query.items()), quote_via=quote)}"
            try:
                page = ElementTree.fromstring(self.get(url, name).content)
            except ElementTree.ParseError as error:
                raise StorageError(f"{name}: the bucket's listing is not XML ({error}).") from error
            for entry in page.iterfind("{*}Contents"):
                key = entry.findtext("{*}Key", "").removeprefix(self._folder)
                sizes[key] = int(entry.findtext("{*}Size", "0"))
            token = page.findtext("{*}NextContinuationToken")
            if not token:
                return sizes
            query["continuation-token"] = token


def _bucket_url(bucket: str, region: str, endpoint_url: str | None) -> str:
    """Return the URL of a bucket, in path style or as a host of its own."""
    if endpoint_url is not None:
        parts = urlsplit(endpoint_url)
        return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}/{bucket}"
    if "." in bucket:
        # Amazon's wildcard certificates do not cover such hosts.
        return f"https://s3.{region}.amazonaws.com/{bucket}"
    return f"https://{bucket}.s3.{region}.amazonaws.com"
