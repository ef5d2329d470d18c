# SPDX-License-Identifier: Apache-2.0
"""Properties are checked without a deadline: a busy machine breaks no rule."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("patient", deadline=None)
settings.load_profile("patient")
