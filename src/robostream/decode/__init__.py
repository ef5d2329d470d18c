# SPDX-License-Identifier: Apache-2.0
"""Frames: from byte ranges of an MP4 to images. For one thread of a process.

mp4.py            the sample table of an MP4, from its moov box alone
frame_index.py    FrameIndex: the frames of a file, and the only rule that matches times to frames
indexing.py       builds the index of a file, through FFmpeg where its table is unusual
index_cache.py    indices saved on disk
statistics.py     counts and times of decoding
video_files.py    open files with their indices
packets.py        which packets a set of frames needs, and their bytes
buffer_pool.py    memory of a fixed size, handed out in slots
frames.py         decoded frames: layout, planes, and PyAV's frames as such
backends.py       the decoders: PyAV and torchcodec
ffmpeg.py         colour conversion by calling FFmpeg directly, which is faster
yuv420.py         4:2:0 frames in a batch as they were decoded, and how to draw them
render.py         draws, packs and scales frames
clip.py           Clip: a camera's frames of an episode; ClipUses: when they are delivered
frame_cache.py    caches of decoded frames: by next use, least recently used
shared_frame_cache.py  decoded frames of a whole selection, cached once for all processes
decoder.py        FrameDecoder: decodes frames of clips, scales and caches them, draws them
random_access.py  FrameEngine: frames by number, with read-ahead, made of the above
"""

from robostream.decode.backends import (
    Backend,
    FileRun,
    PyavBackend,
    TorchcodecBackend,
    has_codec,
    new_context,
)
from robostream.decode.buffer_pool import BufferPool
from robostream.decode.clip import Clip, ClipUses, Clock, Uses, needed_frames
from robostream.decode.decoder import FrameDecoder
from robostream.decode.ffmpeg import load_ffmpeg
from robostream.decode.frame_cache import FrameCache, LruFrameCache, NextUseCache
from robostream.decode.frame_index import CodecConfig, FrameIndex
from robostream.decode.frames import (
    CPU,
    PLANAR_8BIT,
    DecodedFrame,
    FrameLayout,
    FrameReader,
    PackedFrame,
    Plane,
    describe_size_mismatch,
    frame_layout,
    one_thread,
)
from robostream.decode.indexing import build_index
from robostream.decode.packets import new_packet, packet_span, plan_runs
from robostream.decode.random_access import FrameEngine
from robostream.decode.render import Renderer, Size, scale_values
from robostream.decode.shared_frame_cache import SharedFrameCache, SharedFrameLayout
from robostream.decode.statistics import COUNTERS, DecodeStatistics, Meter, summarise
from robostream.decode.video_files import VideoFile, VideoFiles, VideoSource
from robostream.decode.yuv420 import (
    NUM_LABELS,
    drawing_of,
    label_of,
    label_place,
    open_yuv,
    write_black_yuv,
    yuv_bytes,
)

__all__ = [
    "COUNTERS",
    "CPU",
    "NUM_LABELS",
    "PLANAR_8BIT",
    "Backend",
    "BufferPool",
    "Clip",
    "ClipUses",
    "Clock",
    "CodecConfig",
    "DecodeStatistics",
    "DecodedFrame",
    "FileRun",
    "FrameCache",
    "FrameDecoder",
    "FrameEngine",
    "FrameIndex",
    "FrameLayout",
    "FrameReader",
    "LruFrameCache",
    "Meter",
    "NextUseCache",
    "PackedFrame",
    "Plane",
    "PyavBackend",
    "Renderer",
    "SharedFrameCache",
    "SharedFrameLayout",
    "Size",
    "TorchcodecBackend",
    "Uses",
    "VideoFile",
    "VideoFiles",
    "VideoSource",
    "build_index",
    "describe_size_mismatch",
    "drawing_of",
    "has_codec",
    "frame_layout",
    "label_of",
    "label_place",
    "load_ffmpeg",
    "needed_frames",
    "new_context",
    "new_packet",
    "one_thread",
    "open_yuv",
    "packet_span",
    "plan_runs",
    "scale_values",
    "summarise",
    "write_black_yuv",
    "yuv_bytes",
]
