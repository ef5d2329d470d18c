# SPDX-License-Identifier: Apache-2.0
"""Byte-range access to dataset files, local and remote, with a disk cache for remote bytes.

Processes that read local files load no module of remote ones: their names load on first use.

location.py       dataset roots, relative paths, and URLs without secrets
safe_files.py     private folders and files, and atomic writes
lru.py            a least-recently-used cache with a weight budget
byte_source.py    the protocol of a file; merged reads; a seekable file object; local files
block_file.py     the format of a block file, and one open block file
cache_folder.py   the cache folder, its locks, and the liveness of its processes
cache_quota.py    the bytes in use, and which blocks to evict
cache.py          the cache in one process: contents, limits, warnings, mapped files
cached_file.py    one remote file in the cache: reading, filling, next use
retry.py          retries with backoff, request counters, and a rate limit per server
remote_source.py  a remote file: retried reads, size and version checks, with or without cache
connections.py    pooled HTTP connections
http_store.py     files behind HTTP: ranges, redirects, errors from responses; plain web servers
hub.py            Hugging Face Hub: range reads, refs, downloads, uploads
s3_store.py       S3 buckets and request signatures
fsspec_store.py   any other fsspec filesystem
opener.py         from a location to its store and files; filling the cache ahead of a run
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from robostream.storage.byte_source import (
    ByteRange,
    ByteSource,
    LocalSource,
    SourceFile,
    choose_gap,
    coalesce,
)
from robostream.storage.cache import (
    Cache,
    CacheInfo,
    MappedFile,
    cache_limit,
    discard_mapped_file,
    open_mapped_file,
)
from robostream.storage.cache_folder import is_cache
from robostream.storage.location import (
    CacheSettings,
    Location,
    as_location,
    check_relative_path,
    explicit_root,
    parse_repo_url,
    redact,
)
from robostream.storage.lru import LruCache
from robostream.storage.opener import CacheWarmer, CancellingPool, FileOpener, open_cache
from robostream.storage.retry import TRAFFIC, Traffic
from robostream.storage.safe_files import (
    make_private_folder,
    open_private,
    sync_to_disk,
    write_bytes_atomic,
)

if TYPE_CHECKING:
    from robostream.storage.cached_file import CachedFile, open_cached_file
    from robostream.storage.hub import download, list_refs, upload

_ON_FIRST_USE = {"cached_file": "CachedFile open_cached_file", "hub": "download list_refs upload"}
_HOMES = {name: home for home, names in _ON_FIRST_USE.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'robostream.storage' has no attribute {name!r}")
    return getattr(importlib.import_module(f"robostream.storage.{_HOMES[name]}"), name)
