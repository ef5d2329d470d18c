# SPDX-License-Identifier: Apache-2.0
"""Videos to decode; properties are checked without a deadline: a busy machine breaks no rule."""

from __future__ import annotations

from hypothesis import settings

from tests.decode.conftest import clip

__all__ = ["clip"]

settings.register_profile("patient", deadline=None)
settings.load_profile("patient")
