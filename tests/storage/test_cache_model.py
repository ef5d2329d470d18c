# SPDX-License-Identifier: Apache-2.0
"""Random reads, fills, hints, kills and power cuts against plain bytes."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest import mock

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from robostream.storage import Cache, open_cached_file
from robostream.storage import block_file as block_file
from robostream.storage.block_file import are_valid
from robostream.storage.cache_folder import open_cache_folder
from robostream.storage.cache_quota import block_files, locked_quota
from tests.parameters import examples
from tests.storage.memory_remote import BLOCK, Remote, block_paths, disk_bytes

SIZES = (0, 1, BLOCK, 7 * BLOCK + 9, 40 * BLOCK, 100 * BLOCK - 1)
REMOTES = [Remote(size, seed) for seed, size in enumerate(SIZES)]
FILES = st.integers(0, len(SIZES) - 1)
SPANS = st.tuples(st.floats(0, 1), st.floats(0, 1)).map(sorted)
WHO = st.integers(0, 1)
# What changes the disk; a process may die before any of these.
STEPS = [(os, "pwrite"), (os, "ftruncate"), (Path, "unlink"), (block_file, "punch_hole")]


class Killed(BaseException):
    """Stands for SIGKILL, which nothing can catch; the kernel's part is played by `finally`."""


@contextmanager
def killed_before(step: int) -> Iterator[None]:
    """Let the process die before its `step`-th change of the disk."""
    left = step

    def dying(real: Callable[..., Any]) -> Callable[..., Any]:
        def change(*args: Any, **options: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise Killed
            return real(*args, **options)

        return change

    with suppress(Killed), ExitStack() as stack:
        for home, name in STEPS:
            stack.enter_context(mock.patch.object(home, name, dying(getattr(home, name))))
        yield


def part_of(number: int, span: list[float]) -> tuple[int, int]:
    start, stop = (int(share * SIZES[number]) for share in span)
    return start, stop


class CacheMachine(RuleBasedStateMachine):
    """Two holds on one folder, as two processes have, and others that die."""

    def __init__(self) -> None:
        super().__init__()
        self.parent = Path(tempfile.mkdtemp())
        self.folder = self.parent / "cache"
        self.is_damaged = False

    @initialize(blocks=st.integers(0, 150))
    def make(self, blocks: int) -> None:
        """Begin with an empty cache, which may be too small for anything."""
        self.limit = blocks * BLOCK
        self.holds = [self.hold(), self.hold()]

    def hold(self) -> list[Any]:
        """Return the files as a new process opens them."""
        cache = Cache(self.folder, self.limit, BLOCK)
        return [
            open_cached_file(cache, f"file {number}", "1", size)
            for number, size in enumerate(SIZES)
        ]

    @rule(who=WHO, number=FILES, span=SPANS)
    def read(self, who: int, number: int, span: list[float]) -> None:
        """Every read is exact, whatever happened before."""
        REMOTES[number].check(self.holds[who][number], *part_of(number, span))

    @rule(who=WHO, number=FILES, span=SPANS)
    def fill(self, who: int, number: int, span: list[float]) -> None:
        """Somebody prefetched a range."""
        start, stop = part_of(number, span)
        self.holds[who][number].fill(start, REMOTES[number].content[start:stop])

    @rule(who=WHO, number=FILES, span=SPANS, when=st.floats(0, allow_nan=False))
    def hint(self, who: int, number: int, span: list[float], when: float) -> None:
        """Somebody says what it will read."""
        self.holds[who][number].set_next_use(*part_of(number, span), when)

    @rule(number=FILES, step=st.integers(0, 40))
    def read_and_die(self, number: int, step: int) -> None:
        """A process is killed while it fills, makes room or makes a file."""
        with killed_before(step):
            REMOTES[number].check(self.hold()[number], 0, SIZES[number])

    @rule(step=st.integers(0, 20))
    def clear_and_die(self, step: int) -> None:
        """A process is killed while it clears the cache."""
        with killed_before(step):
            Cache(self.folder, self.limit, BLOCK).clear()

    @rule(who=WHO)
    def end_and_begin(self, who: int) -> None:
        """A process ends and another begins."""
        self.holds[who] = self.hold()

    @rule(number=st.integers(0, 5), place=st.floats(0, 1), is_cut=st.booleans())
    def cut_power(self, number: int, place: float, is_cut: bool) -> None:
        """The machine starts again; sectors of a file, or its end, never reached the disk."""
        paths = block_paths(self.folder)
        if not paths:
            return
        # Not drawn from the files: which there are depends on the clock, and must be repeatable.
        path = paths[number % len(paths)]
        size = path.stat().st_size
        at = int(place * size) // 512 * 512
        with open(path, "r+b") as file:
            if is_cut:
                file.truncate(at)
            else:
                file.seek(at)
                file.write(b"\0" * min(5120, size - at))
        (self.folder / "lock").write_bytes(b"as of another start of the machine")
        with locked_quota(open_cache_folder(self.folder, BLOCK), self.limit) as quota:
            quota.used()
        self.holds = [self.hold(), self.hold()]
        self.is_damaged = True

    @invariant()
    def the_limit_holds(self) -> None:
        """Nothing takes space beyond the limit, nor without being counted."""
        if not self.folder.exists():
            return
        folder = open_cache_folder(self.folder, BLOCK)
        with locked_quota(folder, self.limit) as quota:
            counted = quota.used()
        marked = sum(file.nbytes for _, file in block_files(folder))

        assert disk_bytes(self.folder) <= marked <= counted
        assert disk_bytes(self.folder) <= self.limit

    @invariant()
    def marked_blocks_are_right(self) -> None:
        """Unless power was cut, a marked block has its bytes."""
        if not self.folder.exists() or self.is_damaged:
            return
        for _, file in block_files(open_cache_folder(self.folder, BLOCK)):
            content = REMOTES[int(file.shown_name.removeprefix("file "))].content
            good = are_valid(file.column("header"), 0)
            for block in good.nonzero()[0].tolist():
                start, stop = file.layout.bytes_of(range(block, block + 1))
                assert file.read(start, stop) == content[start:stop]

    def teardown(self) -> None:
        """Leave nothing behind."""
        shutil.rmtree(self.parent)


TestCacheMachine = CacheMachine.TestCase
TestCacheMachine.settings = settings(examples(60), stateful_step_count=30)
