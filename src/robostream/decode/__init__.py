# SPDX-License-Identifier: Apache-2.0
"""Frames: from byte ranges of an MP4 to pictures."""

from robostream.decode.backend import Backend, Piece
from robostream.decode.conversion import one_thread
from robostream.decode.engine import FrameEngine
from robostream.decode.file_cache import VideoDecoderCache
from robostream.decode.frame_index import CodecConfig, FrameIndex
from robostream.decode.indexing import build_index
from robostream.decode.requests import Want
from robostream.decode.slot_table import NEVER, NextUses
from robostream.decode.statistics import COUNTERS, DecodeStatistics, StatisticsBoard
from robostream.decode.torchcodec_backend import TorchcodecBackend

__all__ = [
    "COUNTERS",
    "NEVER",
    "Backend",
    "CodecConfig",
    "DecodeStatistics",
    "FrameEngine",
    "FrameIndex",
    "NextUses",
    "Piece",
    "StatisticsBoard",
    "TorchcodecBackend",
    "VideoDecoderCache",
    "Want",
    "build_index",
    "one_thread",
]
