# SPDX-License-Identifier: Apache-2.0
"""A digest of an epoch, for comparing two runs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from robostream import StreamingDataLoader


@dataclass(frozen=True, slots=True)
class EpochDigest:
    """One epoch of one rank.

    Attributes:
        receipts: The receipt of the order after each batch.
        indices: The dataset-wide number of each frame delivered.
        values: A hash of everything delivered: keys, dtypes, shapes, every byte of every value.
    """

    receipts: tuple[str, ...]
    indices: tuple[int, ...]
    values: str


def digest_epoch(loader: StreamingDataLoader) -> EpochDigest:
    """Consume an epoch of a loader and return its digest."""
    receipts, indices, hashed = [], [], hashlib.sha256()
    for batch in loader:
        receipts.append(str(loader.state_dict()["receipt"]))
        indices += batch["index"].tolist()
        for part in _bytes_of(batch):
            hashed.update(part)
    return EpochDigest(tuple(receipts), tuple(indices), hashed.hexdigest())


def _bytes_of(batch: dict[str, Any]) -> Iterator[bytes]:
    for key in sorted(batch):
        value = batch[key]
        if isinstance(value, torch.Tensor):
            yield f"{key} {value.dtype} {tuple(value.shape)}".encode()
            yield value.contiguous().numpy().tobytes()
        else:
            yield f"{key} {value!r}".encode()
