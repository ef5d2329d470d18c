# SPDX-License-Identifier: Apache-2.0
"""What `robostream bench gpu` measures."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

from robostream.tools import SynthSpec

# By what way pictures come to the GPU: drawn by workers and copied as RGB, copied as 4:2:0 and
# drawn there, or decoded there.
RGB, YUV, NVDEC = "rgb", "yuv", "nvdec"
# The codecs it decodes; some cases are measured with the first only.
NVDEC_CODECS = ("h264", "hevc")
_WINDOW_S = tuple(-0.4 * step for step in range(7, -1, -1))
_SMALL, _MIDDLE, _LARGE = (256, 256), (480, 640), (720, 1280)
_RESIZED = (224, 224)
# Different episodes of a dataset by the size of its pictures, which take long to make.
_DISTINCT = {_SMALL: 4, _MIDDLE: 4, _LARGE: 2}
# How many processes decode with nothing else to do, and how many workers of a loader.
STREAMS = LOADER_WORKERS = (1, 2, 4, 8)


@dataclass(frozen=True, slots=True)
class Case:
    """One measurement.

    Attributes:
        way: How pictures come to the GPU.
        codec: Of the videos.
        gop: Frames per key frame.
        size: (height, width) of the pictures.
        window_s: The pictures of a sample, in seconds relative to its own.
        workers: Processes that decode.
        resize: What pictures are scaled to.
        streams: How many processes decode with nothing else to do, one number after the other;
            empty for the whole loader.
    """

    way: str
    codec: str
    gop: int
    size: tuple[int, int]
    window_s: tuple[float, ...] = (0.0,)
    workers: int = 1
    resize: tuple[int, int] | None = None
    streams: tuple[int, ...] = ()

    @property
    def mode(self) -> str:
        """Its name for people."""
        return "single" if len(self.window_s) == 1 else "sarm"

    @property
    def batch_size(self) -> int:
        """Samples per batch."""
        return 64 if len(self.window_s) == 1 else 16

    @property
    def spec(self) -> SynthSpec:
        """What its dataset is made of: few different episodes, so that it is made quickly."""
        height, width = self.size
        spec = SynthSpec(
            episodes=640 if self.size == _SMALL else 128,
            min_frames=60,
            max_frames=100,
            cameras=3 if self.size == _SMALL else 2,
            width=width,
            height=height,
            gop=self.gop,
            distinct=_DISTINCT[self.size],
            video_file_mb=0.5,
        )
        if self.codec == "av1":
            return spec
        return dataclasses.replace(spec, codec=self.codec, crf=23)


def upload_cases(workers: list[int]) -> Iterator[Case]:
    """Yield what compares RGB with 4:2:0 on the way to the GPU, by workers."""
    for size, resize in ((_SMALL, None), (_MIDDLE, None), (_MIDDLE, _RESIZED)):
        for window in ((0.0,), _WINDOW_S):
            for count in workers:
                for way in (RGB, YUV):
                    yield Case(way, "av1", 2, size, window, count, resize)


def nvdec_cases(codec: str) -> Iterator[Case]:
    """Yield what says how fast a GPU decodes a codec, alone and in a loader."""
    for gop in (2, 250):
        for size in (_SMALL, _LARGE):
            yield Case(NVDEC, codec, gop, size, streams=STREAMS)
            yield Case(NVDEC, codec, gop, size, workers=LOADER_WORKERS[-1])
    if codec == NVDEC_CODECS[0]:
        for workers in LOADER_WORKERS[:-1]:
            yield Case(NVDEC, codec, 2, _SMALL, workers=workers)
        yield Case(NVDEC, codec, 2, _LARGE, workers=LOADER_WORKERS[-1], resize=_RESIZED)
