# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from robostream.loader import local_ranks


@pytest.mark.parametrize(
    ("environment", "ranks"),
    [
        ({}, 1),
        ({"LOCAL_WORLD_SIZE": "4"}, 4),
        ({"OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, 2),
        ({"SLURM_GTIDS": "0"}, 1),
        ({"SLURM_GTIDS": "4,5,6"}, 3),
        # What was asked for per node is not what a smaller step runs there.
        ({"SLURM_GTIDS": "0,1", "SLURM_NTASKS_PER_NODE": "8"}, 2),
        # One srun task per node that starts torchrun.
        ({"SLURM_GTIDS": "1", "LOCAL_WORLD_SIZE": "8"}, 8),
        ({"LOCAL_WORLD_SIZE": "64"}, 16),
        ({"LOCAL_WORLD_SIZE": "many"}, 1),
    ],
)
def test_ranks_that_share_a_machine_are_counted(
    environment: dict[str, str], ranks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cores and memory are divided by the ranks that are really there."""
    monkeypatch.setattr("os.environ", environment)

    assert local_ranks(16) == ranks
