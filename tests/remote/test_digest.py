# SPDX-License-Identifier: Apache-2.0
"""The digest of an epoch changes with its order and its values."""

from __future__ import annotations

from typing import Any

import torch

from tests.loader.streams import open_loader, open_stream
from tests.remote.digest import EpochDigest, digest_epoch


def one_pixel_off(picture: torch.Tensor) -> torch.Tensor:
    changed = picture.clone()
    changed[0, 0, 0] ^= 1
    return changed


def digest_of(batch_size: int = 8, **options: Any) -> EpochDigest:
    return digest_epoch(open_loader(open_stream(**options), batch_size))


def test_equal_epochs_have_equal_digests() -> None:
    """The digest is stable, and every frame occurs once."""
    first = digest_of()

    assert first == digest_of()
    assert sorted(first.indices) == list(range(len(first.indices)))


def test_another_order_has_other_receipts() -> None:
    """The digest changes with the order of the same frames."""
    first, other = digest_of(), digest_of(seed=7)

    assert sorted(first.indices) == sorted(other.indices)
    assert first.receipts != other.receipts


def test_another_pixel_has_other_values() -> None:
    """The digest changes with one pixel in the same order."""
    first, other = digest_of(), digest_of(image_transforms=one_pixel_off)

    assert (first.receipts, first.indices) == (other.receipts, other.indices)
    assert first.values != other.values
