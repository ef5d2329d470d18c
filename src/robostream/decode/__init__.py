# SPDX-License-Identifier: Apache-2.0
"""Frames: from byte ranges of an MP4 to pictures."""

from robostream.decode.arena import Arena, SlotMemory
from robostream.decode.backend import Backend, Piece
from robostream.decode.conversion import one_thread
from robostream.decode.engine import FrameEngine
from robostream.decode.frame_index import CodecConfig, FrameIndex
from robostream.decode.indexing import build_index
from robostream.decode.metering import Meter, MeteredSource
from robostream.decode.native import load_ffmpeg
from robostream.decode.pyav_backend import PyavBackend
from robostream.decode.render import Layout, Renderer, kept_layout, layout_of
from robostream.decode.runs import plan_runs
from robostream.decode.statistics import COUNTERS, DecodeStatistics, summarise
from robostream.decode.torchcodec_backend import TorchcodecBackend
from robostream.decode.video_files import VideoFile, VideoFiles

__all__ = [
    "COUNTERS",
    "Arena",
    "Backend",
    "CodecConfig",
    "DecodeStatistics",
    "FrameEngine",
    "FrameIndex",
    "Layout",
    "Meter",
    "MeteredSource",
    "Piece",
    "PyavBackend",
    "Renderer",
    "SlotMemory",
    "TorchcodecBackend",
    "VideoFile",
    "VideoFiles",
    "build_index",
    "kept_layout",
    "layout_of",
    "load_ffmpeg",
    "one_thread",
    "plan_runs",
    "summarise",
]
