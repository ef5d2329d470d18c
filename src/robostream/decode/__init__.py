# SPDX-License-Identifier: Apache-2.0
"""Frames: from byte ranges of an MP4 to images. For one thread of a process.

mp4.py            the sample table of an MP4, from its moov box alone
frame_index.py    FrameIndex: the frames of a file, the only rule that matches times to frames, and
                  the packets that a set of frames needs
indexing.py       builds the index of a file, through FFmpeg where its table is unusual; saves it
statistics.py     counts and times of decoding
video_files.py    open files with their indices
frames.py         decoded frames: layout, planes, and PyAV's frames as such
backends.py       from runs of packets to frames, through PyAV
torchcodec_backend.py  the same through torchcodec
ffmpeg.py         colour conversion by calling FFmpeg directly, which is faster
render.py         draws, packs and scales frames, or labels 4:2:0 frames to be drawn elsewhere
clip.py           Clip: a camera's frames of an episode; ClipUses: when they are delivered
frame_cache.py    decoded frames of a whole selection, cached once for all processes
next_use_cache.py  decoded frames of one process, until their last delivery
decoder.py        FrameDecoder: decodes frames of clips, scales and caches them, draws them
random_access.py  FrameEngine: frames by number, with read-ahead and a cache of its own
"""

from robostream.decode.backends import (
    Backend,
    FileRun,
    PyavBackend,
    has_codec,
    new_context,
    new_packet,
)
from robostream.decode.clip import (
    NEVER,
    Clip,
    ClipUses,
    Clock,
    Deliveries,
    Uses,
    needed_frames,
)
from robostream.decode.decoder import FrameDecoder
from robostream.decode.ffmpeg import load_ffmpeg
from robostream.decode.frame_cache import FrameCache, SharedFrameCache, SharedFrameLayout
from robostream.decode.frame_index import CodecConfig, FrameIndex, packet_span, plan_runs
from robostream.decode.frames import (
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
from robostream.decode.next_use_cache import BufferPool, NextUseCache
from robostream.decode.random_access import FrameEngine, LruFrameCache
from robostream.decode.render import (
    NUM_LABELS,
    Renderer,
    Size,
    drawing_of,
    label_place,
    open_yuv,
    scale_values,
    write_black_yuv,
    yuv_bytes,
)
from robostream.decode.statistics import COUNTERS, Meter, summarise
from robostream.decode.torchcodec_backend import TorchcodecBackend
from robostream.decode.video_files import VideoFile, VideoFiles, VideoSource
