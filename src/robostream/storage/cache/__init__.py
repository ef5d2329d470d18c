# SPDX-License-Identifier: Apache-2.0
"""Remote bytes kept on local disk for all processes of a machine, without a server.

layout.py       where things lie in a block file; marks, heads, shown names (pure)
punch.py        giving a part of a file back to the disk
locks.py        locks that end with their process
folder.py       the folder: its mark, its parts, refusing what is not a cache
liveness.py           which processes live, so that their hints count
block_file.py   one open block file: marks, blocks, times of use
whole_file.py   files made here that processes map
eviction.py           which blocks go when room is needed (pure)
quota.py              the bytes in use, and making room
handle.py             what a process shares among files; giving up on a disk that refuses
cached_file.py  one remote file: reading, filling, hints of next use
cache.py        the cache: opening files, the limit, what it has, clearing it
"""

from robostream.storage.cache.cache import Cache, CacheInfo, KeptFile, cache_limit
from robostream.storage.cache.cached_file import CachedFile, Fetch
from robostream.storage.cache.folder import is_cache
from robostream.storage.cache.layout import Layout
from robostream.storage.cache.whole_file import WholeFile

__all__ = [
    "Cache",
    "CacheInfo",
    "CachedFile",
    "Fetch",
    "KeptFile",
    "Layout",
    "WholeFile",
    "cache_limit",
    "is_cache",
]
