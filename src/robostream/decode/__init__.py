# SPDX-License-Identifier: Apache-2.0
"""Frames: from byte ranges of an MP4 to pictures."""
