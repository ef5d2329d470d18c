# SPDX-License-Identifier: Apache-2.0
"""Many ranks on several machines, each with a cache of its own, on this one machine.

    python -m tests.remote.many_ranks '{"root": URL, "folder": ..., "nodes": 8, "ranks": 8, ...}'

Every rank is a process that streams its share of an epoch as real ranks do, but for two things:
it is forked from one that has imported everything, and builds its batches itself instead of having
worker processes do it. What a machine's ranks share is a cache folder, nothing else.
"""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from robostream import StreamingDataLoader, StreamingLeRobotDataset
from tests.remote.digest import digest_epoch

REPO = Path(__file__).parents[2]


def run_ranks(root: str, folder: Path, *, nodes: int, ranks: int, at_once: bool) -> list[Any]:
    """Return the result of each rank, or its error as text.

    Args:
        root: The dataset's address.
        folder: An empty folder for the caches and what the ranks write.
        nodes: How many machines.
        ranks: How many ranks each has.
        at_once: Whether the ranks of a machine run at once, or one after the other.
    """
    request = {"root": root, "folder": str(folder), "nodes": nodes, "ranks": ranks}
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.remote.many_ranks",
            json.dumps(request | {"at_once": at_once}),
        ],
        cwd=REPO,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    written = [folder / f"rank-{rank}.json" for rank in range(nodes * ranks)]
    return [json.loads(path.read_text()) if path.exists() else done.stderr for path in written]


def _stream(request: dict[str, Any], node: int, rank: int) -> None:
    home = Path(request["folder"]) / f"node-{node}"
    os.environ["ROBOSTREAM_CACHE"] = str(home)
    stream = StreamingLeRobotDataset(
        "lab/cups",
        root=request["root"],
        cache_dir=home / "cache",
        rank=rank,
        world_size=request["nodes"] * request["ranks"],
        return_uint8=True,
    )
    loader = StreamingDataLoader(stream, batch_size=2, num_workers=0)
    found = dataclasses.asdict(digest_epoch(loader)) | {"stats": loader.stats()}
    Path(request["folder"], f"rank-{rank}.json").write_text(json.dumps(found))


def _ranks_of_node(request: dict[str, Any], node: int) -> None:
    number = request["ranks"]
    ranks = [_fork(_stream, request, node, node * number + place) for place in range(number)]
    if request["at_once"]:
        _run(ranks)
    else:
        for rank in ranks:
            _run([rank])


def _fork(function: Any, *arguments: Any) -> BaseProcess:
    return multiprocessing.get_context("fork").Process(target=function, args=arguments)


def _run(processes: Sequence[BaseProcess]) -> None:
    for process in processes:
        process.start()
    for process in processes:
        process.join()


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    _run([_fork(_ranks_of_node, asked, node) for node in range(asked["nodes"])])
