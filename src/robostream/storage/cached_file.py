# SPDX-License-Identifier: Apache-2.0
"""One remote file in the cache.

Readers take no lock and block nobody. A reader looks at the block headers, reads, and looks again:
eviction invalidates headers before it touches bytes, and a block that was fetched again has another
serial, so unchanged headers mean that the bytes are right. The first time a process meets a block
it verifies the checksum, which finds the damage of a power cut, a failing disk or a third party.
"""

from __future__ import annotations

import math
import time
import weakref
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np

from robostream.errors import CacheError
from robostream.storage.block_file import (
    BLOCK_HEADER,
    DIRTY,
    BlockFile,
    BlockLayout,
    Ranges,
    are_valid,
    create_block_file,
    open_block_file,
    runs,
)
from robostream.storage.byte_source import check_length
from robostream.storage.cache import Cache
from robostream.storage.cache_folder import claimed
from robostream.storage.cache_quota import CacheQuota
from robostream.storage.location import digest, redact

# Returns exactly the bytes [start, stop) of the remote file, or raises.
Fetch = Callable[[int, int], bytes]

# Bytes of one write: few enough that nobody waits long for the lock.
_PIECE_BYTES = 16 * 1024**2
# The precision of the time of last use.
_SAME_USE_S = 60


class CachedFile:
    """The blocks of one version of one remote file, which has `size_bytes`. Thread-safe."""

    def __init__(self, cache: Cache, key: str, shown_name: str, size: int) -> None:
        self.size_bytes = size
        self._cache = cache
        self._path = cache.folder.blocks / key
        self._shown_name = shown_name
        self._layout = layout = BlockLayout(size, cache.folder.block_bytes)
        self._file: weakref.ref[BlockFile] | None = None
        # The headers of blocks that this process has verified (no header is all ones), and when it
        # last set their time of last use.
        self._verified = bytearray(b"\xff" * (16 * layout.num_blocks))
        self._used_s = np.zeros(layout.num_blocks, np.int64)
        # Prefetched bytes that do not fit into the cache.
        self._held: dict[tuple[int, int], memoryview] = {}
        # Read before it was prefetched, and not kept.
        self._read_early: Ranges = []

    def read(self, start: int, stop: int, fetch: Fetch) -> bytes:
        """Return exactly the bytes [start, stop); fetch and keep what is missing."""
        # Of several processes that miss the same bytes, one fetches them and the others wait.
        pieces = self._find(*self._check(start, stop))
        if gaps := _gaps(pieces, start, stop):
            with self.claim(gaps[0][0], gaps[-1][1]):
                for gap in gaps:
                    pieces |= self._find_or_fetch(*gap, fetch)
        return b"".join(pieces[at] for at in sorted(pieces))

    def missing(self, start: int, stop: int) -> Ranges:
        """Return what must be fetched to have [start, stop): complete blocks, merged."""
        blocks = self._layout.blocks_touching(*self._check(start, stop))
        file = self._open() if blocks else None
        missing = file.missing(blocks) if file else [blocks] if blocks else []
        return [self._layout.bytes_of(run) for run in missing]

    @contextmanager
    def claim(self, start: int, stop: int, next_use: float | None = None) -> Iterator[Ranges]:
        """Keep others from fetching the same bytes; yields what is missing. Do not nest."""
        blocks = self._layout.blocks_touching(*self._check(start, stop))
        if self._open() is None:
            self._cache.run_locked(lambda quota: self._create(quota, next_use))
        with claimed(self._path, blocks.start, blocks.stop):
            yield self.missing(start, stop)

    def ensure_cached(self, start: int, stop: int, fetch: Fetch) -> None:
        """Fetch what is missing of [start, stop) if it fits."""
        with self.claim(start, stop) as missing:
            if self._has_space(missing):
                for gap in missing:
                    self.fill(gap[0], fetch(*gap), self._cache.next_use)

    def prefetch(self, start: int, stop: int, next_use: float, fetch: Fetch) -> None:
        """Keep [start, stop) available until `release`, on disk or else in memory."""
        # Fetches nothing if neither has space.
        self._cache.start_prefetching()
        self.set_next_use(start, stop, next_use)
        with self.claim(start, stop, next_use) as missing:
            if self._has_space(missing):
                for gap in missing:
                    self._keep(gap[0], fetch(*gap), math.inf)
                return
            for begin, end in missing:
                self._prefetch_exactly(max(begin, start), min(end, stop), next_use, fetch)

    def release(self, start: int, stop: int, next_use: float) -> None:
        """Record that [start, stop) was read, and the time of its next use."""
        for begin, end in list(self._held):
            if start <= begin and end <= stop:
                self._held.pop((begin, end), None)
        self._read_early = [r for r in self._read_early if r[1] <= start or stop <= r[0]]
        self.set_next_use(start, stop, next_use)

    def fill(self, start: int, content: bytes, next_use: float | None = None) -> None:
        """Keep fetched bytes, as far as they are complete blocks and fit."""
        # Blocks needed before `next_use` are not evicted for them.
        self._check(start, start + len(content))
        blocks = self._layout.blocks_within(start, start + len(content))
        piece_bytes = min(_PIECE_BYTES, self._cache.limit_bytes // 4)
        count = max(piece_bytes // self._layout.block_bytes, 1)
        view = memoryview(content)

        def write(piece: range, quota: CacheQuota) -> None:
            file = self._create(quota, next_use)
            missing = [] if file is None else file.missing(piece)
            needed = sum(map(len, missing)) * self._layout.block_bytes
            if needed and not quota.reserve(needed, kept=self._path, next_use=next_use):
                self._cache.warn_full(needed)
            elif file is not None:
                for run in missing:
                    begin, end = self._layout.bytes_of(run)
                    file.write_blocks(run, view[begin - start : end - start])
                    file.set_columns(run, last_use=int(time.time()))

        for at in range(0, len(blocks), count):
            self._cache.run_locked(partial(write, blocks[at : at + count]))

    def set_next_use(self, start: int, stop: int, next_use: float) -> None:
        """Set the time of next use of [start, stop), cached or not.

        `next_use` is a number that grows during the run and that its processes agree on, such as
        the step; math.inf if the run does not need the bytes again.
        """
        if math.isnan(next_use):
            raise ValueError("want a time of next use, got nan")
        blocks = self._layout.blocks_touching(*self._check(start, stop))
        owner = self._cache.run(self._cache.process_number)

        def write(quota: CacheQuota) -> None:
            # Under the lock, so that the file is not deleted as one that nobody needs.
            file = self._create(quota, next_use)
            if file is not None and owner is not None:
                file.set_columns(blocks, next_use=next_use, owner=owner)

        self._cache.run_locked(write)

    def _find_or_fetch(self, start: int, stop: int, fetch: Fetch) -> dict[int, bytes]:
        """Return the pieces of a missing range; others may have fetched some of it."""
        pieces = self._find(start, stop)
        for gap in _gaps(pieces, start, stop):
            begin, end = self._layout.bytes_of(self._layout.blocks_touching(*gap))
            is_kept = self._has_space([(begin, end)])
            if not is_kept:
                begin, end = gap
                self._read_early += [gap] if self._cache.next_use is not None else []
            content = check_length(fetch(begin, end), begin, end, self._shown_name)
            if is_kept:
                self.fill(begin, content, self._cache.next_use)
            pieces[gap[0]] = content[gap[0] - begin : gap[1] - begin]
        return pieces

    def _find(self, start: int, stop: int) -> dict[int, bytes]:
        """Return the pieces of a range that are on disk or in memory, by their start."""
        pieces = self._find_on_disk(start, stop)
        for (first, last), held in list(self._held.items()):
            for gap in _gaps(pieces, start, stop):
                begin, end = max(gap[0], first), min(gap[1], last)
                if begin < end:
                    pieces[begin] = bytes(held[begin - first : end - first])
        return pieces

    def _find_on_disk(self, start: int, stop: int) -> dict[int, bytes]:
        blocks = self._layout.blocks_touching(start, stop)
        file = self._open() if blocks else None
        while file is not None:
            before = file.raw_column("header", blocks)
            present = self._verify(file, blocks, before)
            pieces = {}
            for run in present:
                begin, end = self._layout.bytes_of(run)
                begin, end = max(begin, start), min(end, stop)
                pieces[begin] = file.read(begin, end)
            after, first = file.raw_column("header", blocks), blocks.start
            read = [slice(16 * (run.start - first), 16 * (run.stop - first)) for run in present]
            if after == before or all(after[part] == before[part] for part in read):
                self._note_use(file, present)
                return pieces
            # Blocks were evicted or filled meanwhile: look again.
        return {}

    def _verify(self, file: BlockFile, blocks: range, raw: bytes) -> list[range]:
        """Return the runs of blocks that match their checksums; each is computed once."""
        if self._verified[16 * blocks.start : 16 * blocks.stop] == raw:
            return [blocks]
        headers = np.frombuffer(raw, BLOCK_HEADER)
        valid = are_valid(headers, blocks.start)
        for index in np.flatnonzero(valid).tolist():
            block, header = blocks[index], raw[16 * index : 16 * index + 16]
            if self._verified[16 * block : 16 * block + 16] == header:
                continue
            content = file.read(*self._layout.bytes_of(range(block, block + 1)))
            if zlib.crc32(content) == int(headers["checksum"][index]):
                self._verified[16 * block : 16 * block + 16] = header
            else:
                valid[index] = False
                self._invalidate(file, block, header)
        return runs(valid, blocks.start)

    def _invalidate(self, file: BlockFile, block: int, header: bytes) -> None:
        """Invalidate a block that is damaged, unless it has just been evicted."""
        one = range(block, block + 1)
        if file.raw_column("header", one) != header:
            return
        self._cache.warn_once(
            "damaged",
            f"has a damaged block, {block} of {self._shown_name} (in {self._path.name}). This "
            "block and other damaged ones are fetched again.",
        )

        def invalidate(_: CacheQuota) -> None:
            if file.raw_column("header", one) == header:
                file.set_columns(one, header=DIRTY)

        self._cache.run_locked(invalidate)

    def _prefetch_exactly(self, start: int, stop: int, next_use: float, fetch: Fetch) -> None:
        """Fetch a range without the rest of its blocks, which might be evicted unread."""
        if any(begin < stop and start < end for begin, end in self._read_early):
            return  # a reader that has begun to read the range fetches the rest of it itself
        blocks = self._layout.blocks_within(start, stop)
        needed = len(blocks) * self._layout.block_bytes
        on_disk = needed if needed and self._free(needed, next_use) else 0
        if needed and not on_disk:
            self._cache.warn_full(needed)
        for gap in _gaps(self._find(start, stop), start, stop):
            if not self._cache.has_memory(gap[1] - gap[0] - on_disk):
                return
            self._keep(gap[0], fetch(*gap), next_use)
        for block in {*self._layout.blocks_touching(start, stop)} - {*blocks}:
            # Where two ranges meet, the block may be complete now.
            begin, end = self._layout.bytes_of(range(block, block + 1))
            pieces = self._find(begin, end)
            if not _gaps(pieces, begin, end):
                self.fill(begin, b"".join(pieces[at] for at in sorted(pieces)), next_use)

    def _keep(self, start: int, content: bytes, next_use: float) -> None:
        """Keep bytes on disk as far as they fit, and the rest in memory."""
        self.fill(start, content, next_use)
        stop = start + len(content)
        for begin, end in self.missing(start, stop):
            begin, end = max(begin, start), min(end, stop)
            part = content[begin - start : end - start]
            self._held[begin, end] = self._cache.hold_in_memory(part)

    def _has_space(self, ranges: Ranges) -> bool:
        """Return whether complete blocks can be kept."""
        # In a process that prefetches, nothing that a run will read is evicted for them. Once that
        # leaves no space, ranges are no longer rounded up to blocks.
        cache, needed = self._cache, sum(stop - start for start, stop in ranges)
        if cache.is_off:
            cache.warn_read_only()
        elif not needed or (not cache.is_full and self._free(needed, cache.next_use)):
            return True
        else:
            cache.note_full(needed)
        return False

    def _free(self, nbytes: int, next_use: float | None) -> bool:
        def free(quota: CacheQuota) -> bool:
            is_there = self._create(quota, next_use) is not None
            return is_there and quota.free(nbytes, kept=self._path, next_use=next_use)

        return bool(self._cache.run_locked(free))

    def _create(self, quota: CacheQuota, next_use: float | None) -> BlockFile | None:
        """Return the block file, created if missing; None if it does not fit."""
        if self._open() is None:
            if not quota.reserve(self._layout.data_at, kept=self._path, next_use=next_use):
                self._cache.warn_full(self._layout.data_at)
                return None
            create_block_file(self._path, self._layout, self._shown_name)
        return self._open()

    def _note_use(self, file: BlockFile, blocks: Iterable[range]) -> None:
        now_s = int(time.time())
        for run in blocks:
            if self._used_s[run.start : run.stop].min() < now_s - _SAME_USE_S:
                self._used_s[run.start : run.stop] = now_s
                if file.is_writable:
                    self._cache.run(partial(file.set_columns, run, last_use=now_s))

    def _open(self) -> BlockFile | None:
        """Return the block file, None if it is missing."""
        file = None if self._file is None else self._file()
        if file is None or file.is_deleted:
            file = open_block_file(self._path)
            if file is not None:
                self._file = weakref.ref(file)
                self._cache.open_files.append(file)
        return file

    def _check(self, start: int, stop: int) -> tuple[int, int]:
        if 0 <= start <= stop <= self.size_bytes:
            return start, stop
        raise ValueError(
            f"{self._shown_name}: want 0 <= start <= stop <= {self.size_bytes}, "
            f"got start={start}, stop={stop}"
        )


def open_cached_file(cache: Cache, name: str, version: str, size: int) -> CachedFile:
    """Return a remote file in the cache. Reads nothing yet.

    `name` is its address, which is hashed; the disk shows it without user and query. Another
    version, which is an ETag or a commit, is another file.
    """
    if not cache.may_hold(size):
        raise CacheError(f"{redact(name)}: {size:,} bytes are too many for the cache.")
    return CachedFile(cache, digest(name, version, str(size)), redact(name), size)


def _gaps(pieces: dict[int, bytes], start: int, stop: int) -> Ranges:
    """Return the parts of [start, stop) that no piece covers. Pure."""
    gaps, at = [], start
    for begin in sorted(pieces):
        if begin > at:
            gaps.append((at, begin))
        at = begin + len(pieces[begin])
    return [*gaps, (at, stop)] if at < stop else gaps
