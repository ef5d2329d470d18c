# SPDX-License-Identifier: Apache-2.0
"""Which decoders and encoders the FFmpeg inside PyAV was built with."""

from __future__ import annotations

import functools
from typing import Literal

import av


@functools.cache
def has_codec(name: str, mode: Literal["r", "w"]) -> bool:
    """Return whether FFmpeg has a decoder ("r"), or an encoder ("w"), of this name."""
    try:
        av.Codec(name, mode)
    except av.codec.codec.UnknownCodecError:
        return False
    return True
