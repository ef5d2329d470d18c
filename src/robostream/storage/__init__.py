# SPDX-License-Identifier: Apache-2.0
"""Bytes, wherever they are: the one door through which metadata, rows and video are read.

files/            files, where they lie and how they are named; those on a local disk
remote/           asking servers: at their pace, again where it failed, never taking a part
stores/           the kinds of servers
cache/            bytes of remote files kept on a local disk
cached_source.py  the bytes of a remote file, seen through the cache
opener.py             from a location to its store; opening, reading and listing files
warm.py           filling the cache ahead of a run
"""

from robostream.storage.cache import (
    Cache,
    CachedFile,
    CacheInfo,
    WholeFile,
    cache_limit,
    is_cache,
)
from robostream.storage.cached_source import open_cache
from robostream.storage.files.atomic import sync_to_disk, write_bytes_atomic
from robostream.storage.files.coalesce import ByteRange, coalesce, lean_gap
from robostream.storage.files.local_store import LocalSource
from robostream.storage.files.location import (
    CacheSettings,
    Location,
    as_location,
    parse_repo_url,
    written_root,
)
from robostream.storage.files.lru import LruCache
from robostream.storage.files.names import confined, redact
from robostream.storage.files.private import make_private_folder, open_private
from robostream.storage.files.source_file import SourceFile
from robostream.storage.files.store import ByteSource, Store
from robostream.storage.opener import FileOpener, list_files, open_source
from robostream.storage.remote.traffic import TRAFFIC, Traffic
from robostream.storage.stores.hub import download, list_refs
from robostream.storage.warm import CacheWarming

__all__ = [
    "TRAFFIC",
    "ByteRange",
    "ByteSource",
    "Cache",
    "CacheInfo",
    "CacheSettings",
    "CachedFile",
    "FileOpener",
    "LocalSource",
    "Location",
    "LruCache",
    "SourceFile",
    "Store",
    "Traffic",
    "CacheWarming",
    "WholeFile",
    "as_location",
    "cache_limit",
    "coalesce",
    "confined",
    "download",
    "is_cache",
    "lean_gap",
    "list_files",
    "list_refs",
    "make_private_folder",
    "open_cache",
    "open_private",
    "open_source",
    "parse_repo_url",
    "redact",
    "sync_to_disk",
    "write_bytes_atomic",
    "written_root",
]
