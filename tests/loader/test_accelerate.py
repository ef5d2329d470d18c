# SPDX-License-Identifier: Apache-2.0
"""Accelerate leaves a loader as it is, or its detours are refused."""

from __future__ import annotations

import pytest
from accelerate import Accelerator, skip_first_batches
from accelerate.utils import DataLoaderConfiguration

from robostream.errors import SelectionError
from tests.loader.streams import blind_stream, indices, open_loader


@pytest.mark.parametrize("dispatches", [None, False])
def test_a_prepared_loader_delivers_this_process_share(dispatches: bool | None) -> None:
    """Accelerate would deal the batches of each process out to all processes once more."""
    loader = open_loader(blind_stream(rank=1, world_size=2), 4)
    expected = indices(open_loader(blind_stream(rank=1, world_size=2), 4))
    accelerator = Accelerator(
        cpu=True, dataloader_config=DataLoaderConfiguration(dispatch_batches=dispatches)
    )

    prepared = accelerator.prepare(loader)

    assert prepared is loader
    assert indices(prepared) == expected


@pytest.mark.parametrize("workers", [0, 1])
def test_skip_first_batches_is_refused_with_the_cure(workers: int) -> None:
    """Accelerate would read the stream with a plain DataLoader: other batches, and no state."""
    loader = open_loader(blind_stream(), 4, num_workers=workers)
    skipped = skip_first_batches(Accelerator(cpu=True).prepare(loader), 3)

    with pytest.raises(SelectionError, match=r"skip_first_batches.*load_state_dict.*batches_consu"):
        next(iter(skipped))


def test_what_the_error_advises_skips_batches() -> None:
    """The rest of the epoch is exact."""
    batches = indices(open_loader(blind_stream(), 4))
    loader = open_loader(blind_stream(), 4)
    loader.load_state_dict({"batches_consumed": 3, "batch_size": 4})

    assert indices(loader) == batches[3:]
