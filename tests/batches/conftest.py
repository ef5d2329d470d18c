# SPDX-License-Identifier: Apache-2.0
"""Videos to decode."""

from __future__ import annotations

from tests.decode.conftest import clip

__all__ = ["clip"]
