# SPDX-License-Identifier: Apache-2.0
"""Train ACT on a streamed LeRobot dataset, on any number of processes and nodes.

  python examples/scaling/train_streaming_multinode.py --root DATASET --steps 1000
  torchrun --nproc-per-node 8 examples/scaling/train_streaming_multinode.py --root DATASET
  srun python examples/scaling/train_streaming_multinode.py --root DATASET --resume_from latest

Exit codes: 0 if all steps are done; 75 if SIGTERM, SIGUSR1 or Ctrl-C stopped the run; 1 and 2 for
errors. A stopped run has written a checkpoint. The same command with --resume_from latest continues
from it, on any number of processes. docs/training.md has the details.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from examples.scaling.options import parse_options
from examples.scaling.preemption import REQUEUE
from examples.scaling.processes import fail, use_half_of_the_cores
from examples.scaling.training import train
from robostream import RobostreamError


def main(arguments: Sequence[str] | None = None) -> int:
    """Train with the options of a command line; return the exit code."""
    options = parse_options(arguments, __doc__)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    use_half_of_the_cores()
    try:
        return 0 if train(options).is_finished else REQUEUE
    except (RobostreamError, ValueError, OSError) as error:
        return fail(error)


if __name__ == "__main__":
    sys.exit(main())
