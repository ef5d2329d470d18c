# SPDX-License-Identifier: Apache-2.0
"""Bytes, wherever they are.

cache/  remote bytes kept on local disk for all processes of a machine
"""

from robostream.storage.cache import (
    Cache,
    CachedFile,
    CacheInfo,
    Fetch,
    KeptFile,
    WholeFile,
    cache_limit,
    is_cache,
    warm,
)

__all__ = [
    "Cache",
    "CacheInfo",
    "CachedFile",
    "Fetch",
    "KeptFile",
    "WholeFile",
    "cache_limit",
    "is_cache",
    "warm",
]
