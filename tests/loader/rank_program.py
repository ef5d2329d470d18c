# SPDX-License-Identifier: Apache-2.0
"""What each process of a distributed test runs: train for some steps, write down what it saw.

    python -m tests.loader.rank_program OUT BATCH WORKERS STEPS [STATE]

Joins the process group its launcher describes (accelerate or torchrun; srun describes none),
streams a fixture, and writes OUT/rank-<n>.json: the world as the dataset found it, the node, each
batch's frame indices, and the state after the last one. With STEPS "die:<n>" rank 1 kills itself
after n steps.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import torch

from robostream import StreamingDataLoader, StreamingLeRobotDataset
from robostream.loader import local_ranks
from robostream.loader.stream import cursor_of
from tests.fixture_datasets import FIXTURES


def join_group() -> Callable[[], object]:
    """Initialise through Accelerate or torch, as the launcher wants; return what waits for all."""
    launcher = os.environ["ROBOSTREAM_LAUNCHER"]
    if launcher == "srun":
        return lambda: None
    if launcher == "accelerate":
        from accelerate import PartialState

        PartialState(cpu=True)
    else:
        torch.distributed.init_process_group("gloo")
    return torch.distributed.barrier


def main(out: Path, batch_size: int, workers: int, steps: str, state: Path | None) -> None:
    """Run one rank."""
    wait_for_all = join_group()
    stream = StreamingLeRobotDataset(
        "some/name", root=FIXTURES / "av1_multifile", camera_keys=[], lanes=12
    )
    loader = StreamingDataLoader(stream, batch_size, num_workers=workers)
    if state is not None:
        loader.load_state_dict(json.loads(state.read_text()))
    dies = steps.startswith("die:")
    limit = int(steps.removeprefix("die:"))
    batches = []
    for batch in islice(loader, limit if limit else None):
        batches.append(batch["index"].tolist())
        # The ranks take every step together, as training does.
        wait_for_all()
        report = {
            "rank": stream.rank,
            "world_size": stream.world_size,
            "found_in": cursor_of(stream).rank.found_in,
            "node": os.environ.get("SLURMD_NODENAME"),
            "local_ranks": local_ranks(stream.world_size),
            "batches": batches,
            "state": loader.state_dict(),
        }
        temp = out / f"rank-{stream.rank}.part"
        temp.write_text(json.dumps(report))
        temp.replace(out / f"rank-{stream.rank}.json")
        wait_for_all()
    if dies and stream.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    wait_for_all()
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    arguments = sys.argv[1:]
    main(
        Path(arguments[0]),
        int(arguments[1]),
        int(arguments[2]),
        arguments[3],
        Path(arguments[4]) if len(arguments) > 4 else None,
    )
