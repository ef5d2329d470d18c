# SPDX-License-Identifier: Apache-2.0
"""Recording: frames in, a LeRobot v3.0 dataset out."""

from robostream.write.encoder_options import DepthEncoderConfig, VideoEncoderConfig
from robostream.write.opening import create_writer, resume_writer
from robostream.write.writer import DatasetWriter

__all__ = [
    "DatasetWriter",
    "DepthEncoderConfig",
    "VideoEncoderConfig",
    "create_writer",
    "resume_writer",
]
