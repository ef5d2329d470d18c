# SPDX-License-Identifier: Apache-2.0
"""Bytes: ranges of local and remote files.

coalesce.py  fewer, larger reads for many small ranges
source.py    byte ranges of one file, local or behind any fsspec filesystem
"""

from robostream.fetch.coalesce import ByteRange, coalesce
from robostream.fetch.source import ByteSource, FsspecSource, LocalSource, open_source

__all__ = [
    "ByteRange",
    "ByteSource",
    "FsspecSource",
    "LocalSource",
    "coalesce",
    "open_source",
]
