# SPDX-License-Identifier: Apache-2.0
"""Requirements of tests that a machine may lack."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest
import torch


def lacking(what: str, reason: str) -> NoReturn:
    """Skip the test for a reason, or fail it if `REQUIRE_<what>=1` is set."""
    variable = f"REQUIRE_{what}"
    if os.environ.get(variable, "0") not in ("", "0"):
        pytest.fail(f"{reason} ({variable} is set)")
    pytest.skip(f"{reason}; {variable}=1 makes this a failure")


def require_gpu() -> None:
    """Skip the test, or fail it, unless torch can use a GPU."""
    if not torch.cuda.is_available():
        lacking("GPU", "torch sees no CUDA device")
