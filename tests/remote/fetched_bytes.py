# SPDX-License-Identifier: Apache-2.0
"""Counts the bytes that epochs fetch through a cache."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from robostream import StreamingDataLoader, StreamingLeRobotDataset
from robostream.testing import serve_files, start_proxy


def fetched_bytes(
    dataset: Path,
    folder: Path,
    limit: int | None,
    *,
    batch_size: int,
    epochs: int = 1,
    **options: Any,
) -> list[int]:
    """Stream a dataset from a server and return the bytes that were fetched in each epoch."""
    fetched = []
    with serve_files(dataset) as server, start_proxy(server) as proxy:
        stream = StreamingLeRobotDataset(
            "lab/cups",
            root=dataset,
            data_files_root=proxy.url,
            cache_dir=folder,
            cache_limit=limit,
            rank=0,
            world_size=1,
            **options,
        )
        loader = StreamingDataLoader(stream, batch_size, num_workers=0)
        with contextlib.closing(loader):
            for _ in range(epochs):
                begun = len(proxy.journal())
                assert sum(len(batch["index"]) for batch in loader) == stream.num_frames
                fetched.append(sum(exchange.sent_bytes for exchange in proxy.journal(begun)))
    return fetched
