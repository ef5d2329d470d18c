# SPDX-License-Identifier: Apache-2.0
"""One remote file seen through the cache.

A reader takes no lock and holds none up. It looks at the marks, reads, and looks again: an eviction
withdraws marks before it touches bytes, and a block that came back has another serial, so marks
that did not change say that the bytes are right. The first time a process meets a block it compares
its checksum, which finds what a power cut, a failing disk or a stranger did.
"""

from __future__ import annotations

import math
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np

from robostream import config
from robostream.storage.block_file import BlockFile, create_block_file, open_block_file
from robostream.storage.block_layout import MARK, Layout, Marks, Ranges, are_good, runs
from robostream.storage.cache_folder import claimed
from robostream.storage.cache_handle import CacheHandle, HeldBytes
from robostream.storage.cache_quota import CacheQuota

# Returns exactly the bytes [start, stop) of the remote file, or raises.
Fetch = Callable[[int, int], bytes]

# Bytes written in one go: short enough that nobody waits long for the lock.
_PIECE_BYTES = 16 * 1024**2
# A time of last use this old is good enough.
_SAME_USE_S = 60


class CachedFile:
    """Blocks of one version of one remote file. Thread-safe; pickles with its cache."""

    def __init__(self, keeper: CacheHandle, path: Path, layout: Layout, shown_name: str) -> None:
        self._keeper = keeper
        self._path = path
        self._layout = layout
        self._shown_name = shown_name
        self._file: weakref.ref[BlockFile] | None = None
        # What this process knows: the marks whose checksum it compared (no mark is all ones), and
        # when it noted the last use.
        self._known_marks = bytearray(b"\xff" * (16 * layout.num_blocks))
        self._used_s = np.zeros(layout.num_blocks, np.int64)
        # What was fetched ahead and the cache has no room for.
        self._held: dict[tuple[int, int], HeldBytes] = {}

    @property
    def size_bytes(self) -> int:
        """The length of the remote file."""
        return self._layout.size_bytes

    def read(self, start: int, stop: int, fetch: Fetch) -> bytes:
        """Return exactly the bytes [start, stop); what is missing is fetched and kept.

        Of several processes that miss the same bytes, one fetches them and the others wait.
        """
        self._check(start, stop)
        content = b"" if start == stop else self._known(start, stop)
        if content is not None:
            return content
        pieces = self._kept(start, stop)
        gaps = _gaps(pieces, start, stop)
        if gaps:
            with self._claimed(gaps[0][0], gaps[-1][1]):
                for gap in gaps:
                    pieces |= self._fetched(*gap, fetch)
        return b"".join(pieces[at] for at in sorted(pieces))

    def missing(self, start: int, stop: int) -> Ranges:
        """Return what must be fetched to have [start, stop): whole blocks, neighbours together."""
        self._check(start, stop)
        blocks = self._layout.touched(start, stop)
        absent = ~are_good(self._marks(blocks), blocks.start)
        return [self._layout.bytes_of(run) for run in runs(absent, blocks.start)]

    @contextmanager
    def claim(self, start: int, stop: int) -> Iterator[Ranges]:
        """Hold off others who would fetch the same; gives what is missing then.

        For callers that fetch by themselves and `fill`. Claims are not to be nested.
        """
        with self._claimed(start, stop):
            yield self.missing(start, stop)

    def bring(self, start: int, stop: int, fetch: Fetch) -> None:
        """Fetch what is missing of [start, stop) if there is room for it."""
        with self.claim(start, stop) as missing:
            if self._has_room(missing):
                for gap in missing:
                    self.fill(gap[0], fetch(*gap), self._keeper.spare_after)

    def prefetch(self, start: int, stop: int, when: float, fetch: Fetch) -> None:
        """Have [start, stop) at hand until `release`: on disk, or else in memory.

        Where neither has room, nothing is fetched: what was read later would be fetched again.

        Args:
            start: The first byte.
            stop: One past the last.
            when: When they are read, as for `due`.
            fetch: Fetches them.
        """
        self._keeper.spare_after = math.inf
        self.due([(start, stop)], when)
        with self._claimed(start, stop, when):
            missing = self.missing(start, stop)
            if self._has_room(missing):
                for gap in missing:
                    self._keep_or_hold(gap[0], fetch(*gap), math.inf)
                return
            for begin, end in missing:
                self._prefetch_exactly(max(begin, start), min(end, stop), when, fetch)

    def release(self, start: int, stop: int, when: float) -> None:
        """Say that [start, stop) was read, and when it is read next."""
        for begin, end in list(self._held):
            if start <= begin and end <= stop:
                self._held.pop((begin, end), None)
        self.due([(start, stop)], when)

    def fill(self, start: int, content: bytes, when: float | None = None) -> None:
        """Keep bytes that were fetched, as far as they are whole blocks and there is room.

        What is wanted before `when` does not go for them.
        """
        self._check(start, start + len(content))
        blocks = self._layout.covered(start, start + len(content))
        count = max(min(_PIECE_BYTES, self._keeper.limit_bytes // 4) // self._layout.block_bytes, 1)
        view = memoryview(content)
        for first in range(blocks.start, blocks.stop, count):
            piece = range(first, min(first + count, blocks.stop))
            store = partial(self._store, blocks=piece, content=view, start=start, due=when)
            self._keeper.write(store)

    def due(self, ranges: Iterable[tuple[int, int]], when: float) -> None:
        """Say when ranges will be read next, whether they are here yet or not.

        Args:
            ranges: Bytes [start, stop) of the file.
            when: Any number that grows as the run goes on and that its processes agree on, such as
                the step; math.inf for what the run does not need again as far as it knows.
        """
        if math.isnan(when):
            raise ValueError("want a time of next use, got nan")
        blocks = [self._layout.touched(*self._check(start, stop)) for start, stop in ranges]
        self._keeper.note(lambda: self._set_due(blocks, when))

    def __reduce__(self) -> tuple[type[CachedFile], tuple[CacheHandle, Path, Layout, str]]:
        return CachedFile, (self._keeper, self._path, self._layout, self._shown_name)

    def _fetched(self, start: int, stop: int, fetch: Fetch) -> dict[int, bytes]:
        """Return the pieces of a range that was missing; others may have brought some of it."""
        pieces = self._kept(start, stop)
        for gap in _gaps(pieces, start, stop):
            begin, end = self._layout.bytes_of(self._layout.touched(*gap))
            is_kept = self._has_room([(begin, end)])
            if not is_kept:
                begin, end = gap
            content = fetch(begin, end)
            if len(content) != end - begin:
                raise OSError(
                    f"{self._shown_name}: wanted bytes {begin} to {end}, the fetch returned "
                    f"{len(content)} in place of {end - begin}"
                )
            if is_kept:
                self.fill(begin, content, self._keeper.spare_after)
            pieces[gap[0]] = content[gap[0] - begin : gap[1] - begin]
        return pieces

    def _known(self, start: int, stop: int) -> bytes | None:
        """Return bytes that are here, all of them in blocks that were compared; else None."""
        blocks = self._layout.touched(start, stop)
        file = self._opened()
        if file is None:
            return None
        known = self._known_marks[16 * blocks.start : 16 * blocks.stop]
        if file.raw_marks(blocks) != known:
            return None
        content = file.read(start, stop)
        if file.raw_marks(blocks) != known or len(content) != stop - start:
            return None
        self._note_use(file, [blocks])
        return content

    def _kept(self, start: int, stop: int) -> dict[int, bytes]:
        """Return the pieces of a range that are here, by where they begin."""
        pieces = self._kept_on_disk(start, stop)
        for held in list(self._held.values()):
            for gap in _gaps(pieces, start, stop):
                begin, end = max(gap[0], held.start), min(gap[1], held.stop)
                if begin < end:
                    pieces[begin] = held.content[begin - held.start : end - held.start]
        return pieces

    def _kept_on_disk(self, start: int, stop: int) -> dict[int, bytes]:
        blocks = self._layout.touched(start, stop)
        file = self._opened() if blocks else None
        if file is None:
            return {}
        while True:
            marks = file.marks(blocks)
            good = are_good(marks, blocks.start)
            for place in np.flatnonzero(good).tolist():
                good[place] = self._is_right(file, blocks[place], marks[place])
            present = runs(good, blocks.start)
            pieces = {}
            for run in present:
                begin, end = self._layout.bytes_of(run)
                begin, end = max(begin, start), min(end, stop)
                pieces[begin] = file.read(begin, end)
            if np.array_equal(file.marks(blocks)[good], marks[good]):
                self._note_use(file, present)
                return pieces
            # Blocks were dropped or filled meanwhile: look again.

    def _is_right(self, file: BlockFile, block: int, mark: Marks) -> bool:
        """Return whether a block has the bytes its mark speaks of, compared once per process."""
        at, serial = slice(16 * block, 16 * block + 16), int(mark["serial"])
        if self._known_marks[at] == mark.tobytes():
            return True
        if file.checksum(block) == int(mark["checksum"]):
            self._known_marks[at] = mark.tobytes()
            return True
        # Either it was dropped just now, or it is damaged and must be fetched again.
        if int(file.marks(range(block, block + 1))["serial"][0]) == serial:
            self._keeper.tell(
                f"has a damaged block, {block} of {self._shown_name} (kept as {self._path.name}). "
                "It is fetched again, as will be others if there are more."
            )
            self._keeper.write(lambda room: file.discard(block, serial))
        return False

    def _prefetch_exactly(self, start: int, stop: int, when: float, fetch: Fetch) -> None:
        """Fetch a range and not the rest of its blocks, which might go before it is read."""
        blocks = self._layout.covered(start, stop)
        needed = len(blocks) * self._layout.block_bytes
        on_disk = needed if needed and self._free(needed, when) else 0
        if needed and not on_disk:
            self._keeper.tell_full(needed)
        for gap in _gaps(self._kept(start, stop), start, stop):
            if not self._keeper.has_memory(gap[1] - gap[0] - on_disk):
                return
            self._keep_or_hold(gap[0], fetch(*gap), when)
        for block in {*self._layout.touched(start, stop)} - {*blocks}:
            # Where two ranges meet, the block may be whole now.
            begin, end = self._layout.bytes_of(range(block, block + 1))
            pieces = self._kept(begin, end)
            if not _gaps(pieces, begin, end):
                self.fill(begin, b"".join(pieces[at] for at in sorted(pieces)), when)

    def _keep_or_hold(self, start: int, content: bytes, when: float) -> None:
        """Keep bytes on disk as far as there is room, and hold the rest in memory."""
        self.fill(start, content, when)
        stop = start + len(content)
        for begin, end in self.missing(start, stop):
            begin, end = max(begin, start), min(end, stop)
            self._held[begin, end] = self._keeper.hold(begin, content[begin - start : end - start])

    def _has_room(self, ranges: Ranges) -> bool:
        """Return whether whole blocks can be kept.

        In a process that prefetches, nothing that a run will read goes for them. Once that leaves
        no room, ranges are not rounded up to blocks any more: the rest would be fetched in vain.
        """
        keeper = self._keeper
        if keeper.is_off:
            keeper.tell_read_only()
            return False
        if keeper.is_tight:
            return False
        needed = sum(stop - start for start, stop in ranges)
        if not needed or self._free(needed, keeper.spare_after):
            return True
        if keeper.spare_after is None:
            keeper.tell_full(needed)
        else:
            keeper.is_tight = True
        return False

    def _free(self, nbytes: int, due: float | None) -> bool:
        found: list[bool] = []
        if self._existing(due) is not None:
            free = partial(CacheQuota.free, nbytes=nbytes, kept=self._path, due=due)
            self._keeper.write(lambda room: found.append(free(room)))
        return found == [True]

    def _store(
        self, room: CacheQuota, blocks: range, content: memoryview, start: int, due: float | None
    ) -> None:
        """Write the blocks that are missing, if there is room."""
        file = self._created(room, due)
        if file is None:
            return
        absent = runs(~are_good(file.marks(blocks), blocks.start), blocks.start)
        needed = sum(map(len, absent)) * self._layout.block_bytes
        if needed and not room.make(needed, kept=self._path, due=due):
            self._keeper.tell_full(needed)
            return
        now_s = int(time.time())
        for run in absent:
            begin, end = self._layout.bytes_of(run)
            file.store(run, content[begin - start : end - start])
            file.set_used(run, now_s)

    def _created(self, room: CacheQuota, due: float | None) -> BlockFile | None:
        """Return the block file, made now if there is none; None if there is no room for it."""
        file = self._opened()
        if file is not None and not file.is_deleted:
            return file
        if not room.make(self._layout.data_at, kept=self._path, due=due):
            self._keeper.tell_full(self._layout.data_at)
            return None
        create_block_file(self._path, self._layout, self._shown_name)
        self._file = None
        return self._opened()

    def _set_due(self, blocks: Iterable[range], when: float) -> None:
        if (file := self._existing(when)) is not None:
            owner = self._keeper.lease_number()
            for run in blocks:
                file.set_due(run, when, owner)

    def _note_use(self, file: BlockFile, blocks: Iterable[range]) -> None:
        now_s = int(time.time())
        for run in blocks:
            if self._used_s[run.start : run.stop].min() < now_s - _SAME_USE_S:
                self._used_s[run.start : run.stop] = now_s
                self._keeper.note(partial(file.set_used, run, now_s))

    @contextmanager
    def _claimed(self, start: int, stop: int, due: float | None = None) -> Iterator[None]:
        blocks = self._layout.touched(*self._check(start, stop))
        self._existing(due)
        with claimed(self._path, blocks.start, blocks.stop, patience_s=config.CACHE_PATIENCE_S):
            yield

    def _existing(self, due: float | None) -> BlockFile | None:
        """Return the block file, made now if there is none yet; None if that cannot be.

        What is wanted before `due` does not go for it.
        """
        if self._opened() is None:
            self._keeper.write(lambda room: self._created(room, due))
        return self._opened()

    def _opened(self) -> BlockFile | None:
        """Return the block file, None if there is none yet."""
        file = None if self._file is None else self._file()
        if file is None:
            file = open_block_file(self._path)
            if file is not None:
                self._file = weakref.ref(self._keeper.hold_open(file))
        return file

    def _marks(self, blocks: range) -> Marks:
        file = self._opened() if blocks else None
        return np.zeros(len(blocks), MARK) if file is None else file.marks(blocks)

    def _check(self, start: int, stop: int) -> tuple[int, int]:
        if not 0 <= start <= stop <= self._layout.size_bytes:
            raise ValueError(
                f"{self._shown_name}: want 0 <= start <= stop <= {self._layout.size_bytes}, "
                f"got start={start}, stop={stop}"
            )
        return start, stop


def _gaps(pieces: dict[int, bytes], start: int, stop: int) -> Ranges:
    """Return what of [start, stop) no piece covers. Pure."""
    gaps, at = [], start
    for begin in sorted(pieces):
        if begin > at:
            gaps.append((at, begin))
        at = begin + len(pieces[begin])
    return [*gaps, (at, stop)] if at < stop else gaps
