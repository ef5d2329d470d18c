# SPDX-License-Identifier: Apache-2.0
"""Accelerate leaves a loader as it is."""

from __future__ import annotations

import pytest
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration

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
