# SPDX-License-Identifier: Apache-2.0
"""How the videos of a copy shall be encoded: the options of `robostream recode` as a record."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from robostream import config
from robostream.write import VideoEncoderConfig

# The largest crf of each codec: the worst quality.
_MOST_CRF = {"h264": 51, "hevc": 51, "libsvtav1": 63}
CODECS = tuple(_MOST_CRF)


@dataclass(frozen=True, slots=True)
class RecodeSpec:
    """How colour videos are encoded.

    Attributes:
        codec: One of CODECS.
        gop: A key frame every so many frames.
        crf: Quality; lower is better and larger. None is the codec's in `config.RECODE_CRF`.
    """

    codec: str = config.RECODE_CODEC
    gop: int = config.VIDEO_GOP
    crf: float | None = None

    def __post_init__(self) -> None:
        if self.codec not in CODECS:
            raise ValueError(f"want a codec out of {', '.join(CODECS)}; got {self.codec!r}")
        if self.crf is None:
            object.__setattr__(self, "crf", config.RECODE_CRF[self.codec])
        if not 0 <= (self.crf or 0) <= _MOST_CRF[self.codec]:
            raise ValueError(
                f"want a crf of 0 to {_MOST_CRF[self.codec]} for {self.codec}, got {self.crf}"
            )
        if self.gop < 1:
            raise ValueError(f"want a key frame every 1 frame or more, got a gop of {self.gop}")

    def encoder(self, threads: int) -> VideoEncoderConfig:
        """Return the encoder's options.

        Frames are stored in the order in which they are shown (no B-frames). So a decoder, a GPU's
        above all, returns each frame at once, and none has to wait for later packets.
        """
        usual = VideoEncoderConfig(codec=self.codec, g=self.gop, crf=self.crf, threads=threads)
        if self.codec == "libsvtav1":  # stores frames in this order anyway
            return replace(usual, preset=config.RECODE_SVTAV1_PRESET)
        return replace(usual, extra_options={"bf": 0})

    def to_dict(self) -> dict[str, Any]:
        """Return the spec for JSON."""
        return asdict(self)
