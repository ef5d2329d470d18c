# SPDX-License-Identifier: Apache-2.0
"""S3 buckets, at Amazon or elsewhere, and any other fsspec filesystem.

botocore finds S3's credentials in the usual places (environment, profiles, single sign-on, roles of
machines and containers), renews those that expire, and signs requests. The requests themselves are
plain HTTP: with botocore or s3fs each costs several times the CPU time, and obstore hangs in forked
processes.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from robostream import config
from robostream.errors import (
    AccessDeniedError,
    MissingExtraError,
    MissingFileError,
    NoListingError,
    StorageError,
)
from robostream.storage.http_store import HttpStore
from robostream.storage.location import Location, digest, redact
from robostream.storage.remote_source import FileChunk
from robostream.storage.retry import Traffic, TransientError, retry_policy

_DEFAULT_REGION = "us-east-1"
_CLIENT = "client_kwargs"  # in which s3fs takes the region and the endpoint
_S3_URL = re.compile(r"s3a?://([^/]+)(?:/(.*))?")
# The names that filesystems use for a file's version.
_VERSION_KEYS = ("ETag", "etag", "md5Hash", "LastModified", "last_modified", "mtime", "created")
# Options that grant access and select no content.
_CREDENTIAL = re.compile(r"(?i)token|secret|password|key|credential")
# Attributes of Azure's and Google's filesystems with an address that the environment may set.
_ENDPOINTS = ("account_name", "account_url", "base")


class FsspecStore:
    """A folder of an fsspec filesystem."""

    def __init__(self, location: Location, traffic: Traffic) -> None:
        self._location = location
        self._traffic = traffic
        self._fs, self._root = self._call(lambda: _open_filesystem(location), location.url)
        self._endpoint = _endpoint(self._fs, location.options)

    def open(self, file: str) -> FsspecFile:
        """Return a file. Sends nothing yet."""
        path, name = f"{self._root}/{file}", self._location.describe(file)
        return FsspecFile(self._fs, path, name=name, identity=digest(name, self._endpoint))

    def list_files(self, folder: str) -> dict[str, int]:
        """Return the size of every file below a folder."""
        prefix = self._root.rstrip("/") + "/"
        name = self._location.describe(folder)
        try:
            listed = self._call(lambda: self._fs.find(prefix + folder, detail=True), name)
        except MissingFileError:
            return {}
        except NotImplementedError as error:
            raise NoListingError(f"{name}: this store lists no files.") from error
        return {path.removeprefix(prefix): int(entry["size"]) for path, entry in listed.items()}

    def _call(self, send: Callable[[], Any], name: str) -> Any:
        policy = retry_policy(_server_of(name), self._traffic)
        return policy.call(_translated_errors(name)(send), name)


class FsspecFile:
    """A file of an fsspec filesystem; each call sends one request."""

    def __init__(self, fs: Any, path: str, *, name: str, identity: str) -> None:
        self.name = name
        self.identity = identity
        self.server = _server_of(name)
        self._fs = fs
        self._path = path
        self._known: tuple[int, str] | None = None

    def stat(self) -> FileChunk:
        """Return the size and version of the file, without bytes."""
        return self.fetch(0, 0)

    def fetch(self, start: int, stop: int) -> FileChunk:
        """Return the bytes [start, stop), fewer only at the end of the file."""
        with _translated_errors(self.name):
            if self._known is None:
                info = self._fs.info(self._path)
                version = next((str(info[key]) for key in _VERSION_KEYS if info.get(key)), "")
                self._known = int(info["size"]), version
            size, version = self._known
            stop = min(stop, size)
            if start >= stop:
                content = b""
            elif getattr(self._fs, "async_impl", False):
                content = self._fs.cat_file(self._path, start=start, end=stop)
            else:
                # By default, other filesystems read several megabytes ahead.
                with self._fs.open(self._path, "rb", cache_type="none") as opened:
                    opened.seek(start)
                    content = opened.read(stop - start)
        return FileChunk(content, size, version)


def _server_of(name: str) -> str:
    return name.partition("://")[2].partition("/")[0]


def _endpoint(fs: Any, options: Mapping[str, Any]) -> str:
    """Return a text that tells a filesystem's server from others of its kind."""
    chosen = {name: value for name, value in options.items() if not _CREDENTIAL.search(name)}
    for name in _ENDPOINTS:
        if isinstance(found := getattr(fs, name, None), str):
            chosen[name] = found
    return json.dumps(chosen, sort_keys=True, default=lambda value: type(value).__name__)


@contextmanager
def _translated_errors(name: str) -> Iterator[None]:
    """Raise ours for errors of a filesystem; unchained, as their texts may hold signed URLs."""
    try:
        yield
    except StorageError:
        raise
    except FileNotFoundError:
        raise MissingFileError(f"{name}: there is no such file. Check the address.") from None
    except Exception as error:
        # A filesystem in use has imported its library already.
        http, ftp = sys.modules.get("aiohttp"), sys.modules.get("ftplib")
        if isinstance(error, (PermissionError, *((ftp.error_perm,) if ftp else ()))):
            what = redact(str(error)).rstrip(".")
            raise AccessDeniedError(
                f"{name}: {what}. Check the user, the password and the access keys."
            ) from None
        foreign = (*((http.ClientError,) if http else ()), *(ftp.all_errors if ftp else ()))
        if not isinstance(error, (OSError, *foreign)):
            raise
        raise TransientError(str(error) or type(error).__name__) from None


def _open_filesystem(location: Location) -> tuple[Any, str]:
    """Return the fsspec filesystem of a URL, and the folder's path in it."""
    from fsspec.core import url_to_fs  # not needed for other stores

    options = dict(location.options)
    url = options.pop("credential_url", location.url)
    if url != location.url:
        del options["query"]
    try:
        fs, path = url_to_fs(url, **options)
    except ImportError as error:
        # The package's name is in the original error.
        package = error.name or getattr(error.__cause__, "name", None) or str(error)
        raise MissingExtraError(package, None, location.url) from None
    except ValueError as error:
        raise StorageError(
            f"{location.url}: {redact(str(error))}. Want a local folder, "
            "hf://datasets/owner/name[@revision], hf://buckets/owner/name, s3://bucket/path, "
            "https://..., or another fsspec URL."
        ) from None
    return fs, path


class S3Store(HttpStore):
    """A bucket, or a folder of one."""

    OPTIONS = ("key", "secret", "token", "profile", "region", "endpoint_url", "anon", _CLIENT)
    LOGIN = (
        "Check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE; or pass "
        "storage_options={'key': ..., 'secret': ...}. The keys must be allowed to read the "
        "bucket, in its region."
    )

    def __init__(self, location: Location, traffic: Traffic) -> None:
        super().__init__(location, traffic)
        extra = location.options.get(_CLIENT) or {}
        given = {"region": extra.get("region_name"), "endpoint_url": extra.get("endpoint_url")}
        options = location.options | {name: value for name, value in given.items() if value}
        match = _S3_URL.fullmatch(location.url)
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
        from xml.etree import ElementTree  # not needed by workers

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
