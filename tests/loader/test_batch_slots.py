# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import pytest

from robostream.device import BatchSlots, format_batch
from robostream.errors import WorkerError


def test_batches_that_no_memory_can_hold_are_told() -> None:
    """With what to lower; the system's own error names nothing."""
    batches = format_batch({"action": ((1 << 40,), np.float32)}, 8)

    with pytest.raises(WorkerError, match=r"needs 128\.0 TiB of memory.*batch_size"):
        BatchSlots(batches, 4, 2)
