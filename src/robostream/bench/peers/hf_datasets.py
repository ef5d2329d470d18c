# SPDX-License-Identifier: Apache-2.0
"""Pictures in Parquet, through Hugging Face's datasets, which reads no videos here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

BUFFER_SIZE = 1000


def open_rows(root: str, *, streaming: bool) -> Any:
    """Return the rows with pictures as tensors; if streamed, shuffled by a buffer."""
    import datasets  # an optional package

    files = sorted(map(str, Path(root).glob("data/*/*.parquet")))
    rows = datasets.load_dataset("parquet", data_files=files, split="train", streaming=streaming)
    if streaming:
        rows = rows.shuffle(seed=0, buffer_size=BUFFER_SIZE)
    return rows.with_format("torch")
