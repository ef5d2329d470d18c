# SPDX-License-Identifier: Apache-2.0
"""Frames: from byte ranges of an MP4 to pictures. For one thread of a process.

index/            which frames a file has
codec/            from frame numbers to decoded frames
picture/          from decoded frames to pictures
video_source.py   the bytes of a video file, with errors that say so
video_files.py    files held open, with their indices
recent_frames.py  decoded pictures kept for random access
read_ahead.py     what to decode beside the frames that are wanted
engine.py         FrameEngine: random access to frames by number, made of the above
metering.py       counts and times of one thread
statistics.py     the same as counters of one process, which can be added up over processes
"""

from robostream.decode.codec.backend import Backend, FileRun
from robostream.decode.codec.built_in import has_codec
from robostream.decode.codec.packets import new_packet, packet_span
from robostream.decode.codec.pyav_backend import PyavBackend, new_context
from robostream.decode.codec.runs import plan_runs
from robostream.decode.codec.torchcodec_backend import TorchcodecBackend
from robostream.decode.engine import FrameEngine
from robostream.decode.index.frame_index import CodecConfig, FrameIndex
from robostream.decode.index.indexing import build_index
from robostream.decode.metering import Meter, MeteredSource
from robostream.decode.picture.buffer_pool import BufferPool, SlotMemory
from robostream.decode.picture.conversion import one_thread
from robostream.decode.picture.decoded import CPU, DecodedFrame, Plane
from robostream.decode.picture.from_pyav import FrameReader
from robostream.decode.picture.layout import PLANAR_8BIT, FrameLayout, kept_layout
from robostream.decode.picture.native import load_ffmpeg
from robostream.decode.picture.parcel import (
    NUM_LABELS,
    drawing_of,
    label_of,
    label_place,
    open_yuv,
    yuv_bytes,
)
from robostream.decode.picture.render import Renderer
from robostream.decode.picture.scale import FrameScaler, Size, scale_values
from robostream.decode.statistics import COUNTERS, DecodeStatistics, summarise
from robostream.decode.video_files import VideoFile, VideoFiles
from robostream.decode.video_source import VideoSource

__all__ = [
    "COUNTERS",
    "CPU",
    "NUM_LABELS",
    "PLANAR_8BIT",
    "BufferPool",
    "Backend",
    "CodecConfig",
    "DecodeStatistics",
    "DecodedFrame",
    "FrameEngine",
    "FrameIndex",
    "FrameReader",
    "Meter",
    "MeteredSource",
    "FrameLayout",
    "FrameScaler",
    "FileRun",
    "Plane",
    "PyavBackend",
    "Renderer",
    "Size",
    "SlotMemory",
    "TorchcodecBackend",
    "VideoFile",
    "VideoFiles",
    "VideoSource",
    "build_index",
    "drawing_of",
    "kept_layout",
    "has_codec",
    "label_of",
    "label_place",
    "load_ffmpeg",
    "new_context",
    "new_packet",
    "one_thread",
    "open_yuv",
    "packet_span",
    "yuv_bytes",
    "plan_runs",
    "scale_values",
    "summarise",
]
