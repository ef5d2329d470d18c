# SPDX-License-Identifier: Apache-2.0
"""Four processes read through one cache, two of them are killed, again and again.

    python -m tests.storage.killed_readers FOLDER ROUNDS

Each reader reads every range of some files once, in an order of its own, and compares all bytes;
the cache holds about half of them, so there is always something to fetch and something to drop.
Two readers go on until they are killed with SIGKILL. While they read, what the cache takes on disk
is watched; after each round every block is looked at, and the locks are tried. Prints one line per
round; exits 1 at the first thing that is wrong.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path

from robostream.storage import Cache, open_cached_file
from robostream.storage.block_file import are_valid
from robostream.storage.cache_folder import live_processes, locked, open_cache_folder
from robostream.storage.cache_quota import block_files
from tests.forked import in_child
from tests.storage.memory_remote import disk_bytes

BLOCK = 16 * 1024
SIZES = [1_500_000, 900_001, 2_000_000, 50, 700_000]
LIMIT = 2_500_000
RANGE = 100_000


def sources(folder: Path) -> list[Path]:
    """Return local files that stand in for remote ones."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, size in enumerate(SIZES):
        (folder / f"source-{number}").write_bytes(random.Random(number).randbytes(size))
    return [folder / f"source-{number}" for number in range(len(SIZES))]


def read_all(folder: Path, remotes: list[Path], seed: int) -> int:
    """Read every range once, in a random order, with hints; return the bytes fetched."""
    rng, fetched = random.Random(seed), 0
    cache = Cache(folder / "cache", LIMIT, BLOCK)
    files = [
        open_cached_file(cache, path.name, "1", size)
        for path, size in zip(remotes, SIZES, strict=True)
    ]
    contents = [path.read_bytes() for path in remotes]
    wanted = [
        (number, start, min(start + RANGE, size))
        for number, size in enumerate(SIZES)
        for start in range(0, size, RANGE)
    ]
    rng.shuffle(wanted)
    for when, (number, start, stop) in enumerate(wanted):
        files[number].set_next_use(start, stop, when)
    for number, start, stop in wanted:

        def fetch(begin: int, end: int, number: int = number) -> bytes:
            nonlocal fetched
            fetched += end - begin
            time.sleep(rng.random() * 0.002)
            return contents[number][begin:end]

        assert files[number].read(start, stop, fetch) == contents[number][start:stop]
        files[number].set_next_use(start, stop, float("inf"))
    return fetched


def read_forever(folder: Path, remotes: list[Path], seed: int) -> None:
    while True:
        read_all(folder, remotes, seed)
        seed += 1


def play_round(folder: Path, remotes: list[Path], seed: int) -> int:
    """Let two processes read to the end while two are killed; return the peak on disk."""
    rng = random.Random(seed)
    seeds = [rng.randrange(10**9) for _ in range(4)]
    victims = [in_child(lambda s=s: read_forever(folder, remotes, s)) for s in seeds[:2]]
    readers = [in_child(lambda s=s: read_all(folder, remotes, s)) for s in seeds[2:]]
    kills = sorted((time.monotonic() + rng.uniform(0.02, 0.8), victim) for victim in victims)
    most = 0
    try:
        while readers or kills:
            most = max(most, disk_bytes(folder / "cache"))
            if kills and kills[0][0] < time.monotonic():
                victim = kills.pop(0)[1]
                os.kill(victim, signal.SIGKILL)
                assert os.WIFSIGNALED(os.waitpid(victim, 0)[1]), "a reader failed by itself"
            readers = [reader for reader in readers if not has_finished(reader)]
            time.sleep(0.002)
    finally:
        for child in [*readers, *(victim for _, victim in kills)]:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    return most


def has_finished(reader: int) -> bool:
    done, status = os.waitpid(reader, os.WNOHANG)
    if done and status:
        sys.exit("a reader that was not killed failed; see the error above")
    return done != 0


def check_cache(folder: Path, remotes: list[Path]) -> int:
    """Check that no lock is held and every valid block is right; return their number."""
    opened = open_cache_folder(folder / "cache", BLOCK)
    with locked(opened.lock):
        assert live_processes(opened) == []
        blocks = 0
        for _, file in block_files(opened):
            content = (folder / file.shown_name).read_bytes()
            good = are_valid(file.column("header"), 0)
            for block in good.nonzero()[0].tolist():
                start, stop = file.layout.bytes_of(range(block, block + 1))
                assert file.read(start, stop) == content[start:stop], (file.shown_name, block)
                blocks += 1
    read_all(folder, remotes, 0)
    return blocks


def main(folder: Path, rounds: int) -> None:
    remotes = sources(folder)
    for number in range(rounds):
        most = play_round(folder, remotes, number)
        assert most <= LIMIT, f"{most} bytes on disk, limit {LIMIT}"
        blocks = check_cache(folder, remotes)
        assert disk_bytes(folder / "cache") <= LIMIT
        print(
            f"round {number}: at most {most:,} of {LIMIT:,} bytes, {blocks} blocks right",
            flush=True,
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
