# SPDX-License-Identifier: Apache-2.0
"""Compare how loaders resume a mixture of the same rows on other numbers of ranks and workers.

    pip install robostream litdata grain mosaicml-streaming
    python scripts/compare_mixture_resume.py [--loaders robostream,mosaic,litdata,grain]

Two datasets of 960 and 240 rows are mixed in proportion to their sizes, so an epoch has every row
once. Two ranks with two workers each take 20 of 50 global batches of 24 rows and save their state.
Then other numbers of ranks, workers and rows per batch resume from it and take the rest of the
epoch. Every rank is a process. The table says how many rows of the epoch were lost and repeated in
both runs, and, with the same global batch, whether the next one is that of a run without a stop.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROWS = (960, 240)
TAKEN = 20
# Ranks, workers of a rank, rows of a rank's batch.
SAVED_ON = (2, 2, 12)
RESUMED_ON = ((1, 2, 24), (3, 2, 8), (2, 1, 12), (3, 2, 12))
Row = tuple[int, int]
ERROR = re.compile(r"^(\[rank\d\]: )?(?=\w+Error: )")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--loaders", default=",".join(LOADERS))
    parser.add_argument("--child", nargs=8, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        run_child(*options.child)
        return
    columns = ["{} ranks, {} workers, batch {}".format(*topology) for topology in RESUMED_ON]
    print(f"| loader | {' | '.join(columns)} |\n|---|{'---|' * len(columns)}")
    for loader in options.loaders.split(","):
        with tempfile.TemporaryDirectory() as folder:
            cells = compare(loader, Path(folder))
        version = importlib.metadata.version(LOADERS[loader][0])
        print(f"| {loader} {version} | {' | '.join(cells)} |", flush=True)


def compare(loader: str, folder: Path) -> list[str]:
    """Return what a loader does on each number of ranks and workers."""
    _, make, _ = LOADERS[loader]
    if make is not None:
        make(folder)
    whole, _ = run(loader, folder, *SAVED_ON, steps=-1)
    first, failure = run(loader, folder, *SAVED_ON, steps=TAKEN, save=True)
    if failure or len(first) != TAKEN:
        return [f"cannot save: {failure}"] * len(RESUMED_ON)
    cells = []
    for topology in RESUMED_ON:
        rest, failure = run(loader, folder, *topology, steps=-1, load=True)
        cells.append(failure or describe(whole, first, rest))
    return cells


def describe(whole: list[list[Row]], first: list[list[Row]], rest: list[list[Row]]) -> str:
    """Return what was lost and repeated, and whether the next batch is the same."""
    times = Counter(row for step in first + rest for row in step)
    wanted = {(dataset, row) for dataset, count in enumerate(ROWS) for row in range(count)}
    lost, repeated = len(wanted - {*times}), sum(n - 1 for n in times.values())
    found = f"{lost} lost, {repeated} repeated" if lost or repeated else "every row once"
    if not rest or len(rest[0]) != len(whole[TAKEN]):
        return found
    is_same = sorted(rest[0]) == sorted(whole[TAKEN])
    return f"{found}; next batch {'the same' if is_same else 'another'}"


def run(
    loader: str, folder: Path, ranks: int, workers: int, batch: int, *, steps: int, **files: bool
) -> tuple[list[list[Row]], str]:
    """Return the rows of each global batch, and the error if the loader raises one."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    processes = []
    for rank in range(ranks):
        own = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks}
        env = os.environ | {name: str(value) for name, value in own.items()}
        env |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TOKENIZERS_PARALLELISM": "false"}
        words = [loader, folder, rank, ranks, workers, batch, steps, json.dumps(files)]
        command = [sys.executable, __file__, "--child", *map(str, words)]
        piped = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        processes.append(subprocess.Popen(command, env=env, text=True, **piped))
    printed = [process.communicate() for process in processes]
    for process, (_, errors) in zip(processes, printed, strict=True):
        if process.returncode:
            lines = [line for line in errors.splitlines() if ERROR.search(line)]
            return [], f"error: {ERROR.sub('', lines[-1])}" if lines else errors[-200:]
    own_steps = [json.loads(out.splitlines()[-1]) for out, _ in printed]
    joined = [
        [tuple(row) for part in step for row in part] for step in zip(*own_steps, strict=True)
    ]
    return joined, ""


def run_child(loader: str, folder: str, *words: str) -> None:
    """Take the batches of one rank and print their rows; load and save its state."""
    import torch.distributed

    rank, ranks, workers, batch_size, steps = map(int, words[:-1])
    wanted, root = json.loads(words[-1]), Path(folder)
    if loader != "mosaic":  # which begins and ends the group itself
        torch.distributed.init_process_group("gloo")
    # A loader's state is that of its rank. Ranks that did not save one take that of rank 0.
    path = root / f"state-{rank}.json"
    path = path if path.exists() else root / "state-0.json"
    state = json.loads(path.read_text()) if wanted.get("load") else None
    taken: list[list[Row]] = []
    _, _, load = LOADERS[loader]
    batches = load(root, rank, ranks, workers, batch_size, state)
    for batch, capture in batches:
        taken.append(batch)
        if len(taken) == steps:
            if wanted.get("save"):
                (root / f"state-{rank}.json").write_text(json.dumps(capture()))
            break
    print(json.dumps(taken), flush=True)
    os._exit(0)  # without waiting for workers


def make_lerobot(folder: Path) -> None:
    """Write both datasets in LeRobot's format: episodes of 40 rows."""
    import numpy as np

    from robostream import LeRobotDataset

    features = {"observation.state": {"dtype": "float32", "shape": (1,), "names": ["x"]}}
    for number, rows in enumerate(ROWS):
        root = folder / f"set-{number}"
        dataset = LeRobotDataset.create(f"set-{number}", 10, features, root=root, use_videos=False)
        for row in range(rows):
            state = np.array([row], dtype=np.float32)
            dataset.add_frame({"observation.state": state, "task": "mix"})
            if row % 40 == 39:
                dataset.save_episode()
        dataset.finalize()


def load_robostream(
    folder: Path, rank: int, ranks: int, workers: int, batch_size: int, state: Any
) -> Iterator[tuple[list[Row], Any]]:
    from robostream import MixtureDataset, Source, StreamingDataLoader

    sources = [Source(f"set-{n}", folder / f"set-{n}") for n in range(len(ROWS))]
    mixture = MixtureDataset(sources, rank=rank, world_size=ranks)
    loader = StreamingDataLoader(mixture, batch_size, num_workers=workers)
    yield from iterate(loader, state, "dataset_index", "index")


def iterate(loader: Any, state: Any, *names: str) -> Iterator[tuple[list[Row], Any]]:
    """Yield the rows of each batch of a loader that goes on from a state."""
    if state is not None:
        loader.load_state_dict(state)
    for batch in loader:
        rows = zip(*(batch[name].tolist() for name in names), strict=True)
        yield list(rows), loader.state_dict


def make_mosaic(folder: Path) -> None:
    from streaming import MDSWriter

    for number, rows in enumerate(ROWS):
        columns = {"dataset": "int", "row": "int"}
        with MDSWriter(out=str(folder / f"set-{number}"), columns=columns) as writer:
            for row in range(rows):
                writer.write({"dataset": number, "row": row})


def load_mosaic(
    folder: Path, rank: int, ranks: int, workers: int, batch_size: int, state: Any
) -> Iterator[tuple[list[Row], Any]]:
    from streaming import Stream, StreamingDataLoader, StreamingDataset

    dataset = StreamingDataset(
        streams=[Stream(local=str(folder / f"set-{n}")) for n in range(len(ROWS))],
        shuffle=True,
        batch_size=batch_size,
    )
    loader = StreamingDataLoader(dataset, batch_size=batch_size, num_workers=workers)
    yield from iterate(loader, state, "dataset", "row")


def make_litdata(folder: Path) -> None:
    from litdata.streaming.cache import Cache

    for number, rows in enumerate(ROWS):
        cache = Cache(str(folder / f"set-{number}"), chunk_size=40)
        for row in range(rows):
            cache[row] = {"dataset": number, "row": row}
        cache.done()
        cache.merge()


def load_litdata(
    folder: Path, rank: int, ranks: int, workers: int, batch_size: int, state: Any
) -> Iterator[tuple[list[Row], Any]]:
    from litdata import CombinedStreamingDataset, StreamingDataLoader, StreamingDataset

    parts = [StreamingDataset(str(folder / f"set-{n}"), shuffle=True) for n in range(len(ROWS))]
    dataset = CombinedStreamingDataset(parts, seed=42, iterate_over_all=True)
    loader = StreamingDataLoader(dataset, batch_size=batch_size, num_workers=workers)
    if state is not None:
        state["num_samples_yielded"] = {int(k): v for k, v in state["num_samples_yielded"].items()}
    yield from iterate(loader, state, "dataset", "row")


def shuffle_with_grain() -> list[Any]:
    """Return map-style datasets, of which any row can be read."""
    import grain

    return [
        grain.MapDataset.range(rows).shuffle(seed=42).map(lambda row, n=number: (n, int(row)))
        for number, rows in enumerate(ROWS)
    ]


def load_grain(
    folder: Path, rank: int, ranks: int, workers: int, batch_size: int, state: Any
) -> Iterator[tuple[list[Row], Any]]:
    """In the elastic iterator, which reads in threads."""
    import grain

    mixture = grain.MapDataset.mix(shuffle_with_grain(), weights=ROWS)
    yield from iterate_elastic(mixture, rank, ranks, batch_size, state)


def load_grain_streams(
    folder: Path, rank: int, ranks: int, workers: int, batch_size: int, state: Any
) -> Iterator[tuple[list[Row], Any]]:
    """A mixture of iterable datasets in the elastic iterator."""
    import grain

    parts = [part.to_iter_dataset() for part in shuffle_with_grain()]
    mixture = grain.IterDataset.mix(parts, weights=ROWS)
    yield from iterate_elastic(mixture, rank, ranks, batch_size, state)


def iterate_elastic(
    mixture: Any, rank: int, ranks: int, batch_size: int, state: Any
) -> Iterator[tuple[list[Row], Any]]:
    import grain

    shard = grain.sharding.ShardOptions(shard_index=rank, shard_count=ranks)
    loader = grain.experimental.ElasticIterator(mixture, batch_size * ranks, shard)
    yield from iterate_grain(loader, state)


def iterate_grain(loader: Any, state: Any) -> Iterator[tuple[list[Row], Any]]:
    iterator = iter(loader)
    if state is not None:
        iterator.set_state(state)
    for numbers, rows in iterator:
        yield list(zip(numbers.tolist(), rows.tolist(), strict=True)), iterator.get_state


def load_grain_shards(
    folder: Path, rank: int, ranks: int, workers: int, batch_size: int, state: Any
) -> Iterator[tuple[list[Row], Any]]:
    """The same mixture cut into shards, each with an iterator of its own."""
    import grain

    mixture = grain.MapDataset.mix(shuffle_with_grain(), weights=ROWS)
    yield from iterate_grain(mixture[rank::ranks].batch(batch_size).to_iter_dataset(), state)


# By name: its package, what writes its data (none is needed for ranges), and what loads it.
LOADERS = {
    "robostream": ("robostream", make_lerobot, load_robostream),
    "mosaic": ("mosaicml-streaming", make_mosaic, load_mosaic),
    "litdata": ("litdata", make_litdata, load_litdata),
    "grain": ("grain", None, load_grain),
    "grain-streams": ("grain", None, load_grain_streams),
    "grain-shards": ("grain", None, load_grain_shards),
}

if __name__ == "__main__":
    main()
