# SPDX-License-Identifier: Apache-2.0
"""Files and where they lie.

location.py     where a dataset's files lie
names.py        names of files that stay below their root, and addresses without secrets
store.py        what a store offers, and the bytes of one file of it
local_store.py  files on a local disk
source_file.py  the bytes of a file as a file object, for libraries that seek
coalesce.py     fewer, larger reads for many small ranges
atomic.py       writing a file so that nobody ever sees a part of it
private.py      opening files of caches: no links, private unless shared
lru.py                what was used lately, within a budget
"""
