# SPDX-License-Identifier: Apache-2.0
"""Bytes, wherever they are: the one door through which metadata, rows and video are read.

location.py      where a dataset's files lie
store.py         what a store offers, and the bytes of one file of it
local_store.py   files on a local disk
fsspec_store.py  files behind any fsspec filesystem
door.py          from a location to its store; opening, reading and listing files
source_file.py   the bytes of a file as a file object, for libraries that seek
coalesce.py      fewer, larger reads for many small ranges
hub.py           dataset repos on the Hugging Face Hub: their refs, and downloading files
atomic.py        writing a file so that nobody ever sees a part of it
recent.py        what was used lately, within a budget
"""

from robostream.storage.atomic import sync_folder, write_bytes_atomic
from robostream.storage.coalesce import ByteRange, coalesce
from robostream.storage.door import list_files, open_source, read_whole
from robostream.storage.hub import download, list_refs
from robostream.storage.local_store import LocalSource
from robostream.storage.location import Location, as_location, parse_repo_url, written_root
from robostream.storage.recent import Recent
from robostream.storage.source_file import SourceFile
from robostream.storage.store import ByteSource, Store

__all__ = [
    "ByteRange",
    "ByteSource",
    "LocalSource",
    "Location",
    "Recent",
    "SourceFile",
    "Store",
    "as_location",
    "coalesce",
    "download",
    "list_files",
    "list_refs",
    "open_source",
    "parse_repo_url",
    "read_whole",
    "sync_folder",
    "write_bytes_atomic",
    "written_root",
]
