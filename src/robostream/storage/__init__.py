# SPDX-License-Identifier: Apache-2.0
"""Byte-range access to dataset files, local and remote, with a disk cache for remote bytes.

Processes that read local files load no module of remote ones: their names load on first use.

location.py       dataset roots, relative paths, and URLs without secrets
byte_source.py    the protocol of a file; merged reads; a seekable file object; local files
cache_folder.py   private files, atomic writes, locks; the cache folder and its live processes
block_file.py     the format of a block file, and one open block file
cache_quota.py    the bytes in use, and which blocks to evict
cache.py          the cache in one process: contents, limits, warnings, mapped files
cached_file.py    one remote file in the cache: reading, filling, next use
retry.py          retries with backoff, request counters, and a rate limit per server
remote_source.py  a remote file: retried reads, size and version checks, with or without cache
connections.py    pooled HTTP connections
http_store.py     files behind HTTP: ranges, redirects, errors from responses; plain web servers
hub.py            Hugging Face Hub: range reads, refs, downloads, uploads
cloud_stores.py   S3 buckets, and any other fsspec filesystem
opener.py         from a location to its store and open files; filling the cache ahead of a run
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from robostream.lazy import load_on_first_use
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
from robostream.storage.cache_folder import (
    is_cache,
    make_private_folder,
    open_private,
    sync_to_disk,
    write_bytes_atomic,
)
from robostream.storage.location import (
    CacheSettings,
    Location,
    as_location,
    check_relative_path,
    explicit_root,
    parse_repo_url,
    redact,
)
from robostream.storage.opener import CacheWarmer, CancellingPool, FileOpener, LruCache, open_cache
from robostream.storage.retry import TRAFFIC, Traffic

if TYPE_CHECKING:
    from robostream.storage.cached_file import CachedFile, open_cached_file
    from robostream.storage.hub import download, list_refs, upload

__getattr__ = load_on_first_use(
    "robostream.storage",
    {"cached_file": "CachedFile open_cached_file", "hub": "download list_refs upload"},
)
