# SPDX-License-Identifier: Apache-2.0
"""Recording: frames in, a LeRobot v3.0 dataset out.

The files, in the order in which a frame passes through them:

start.py            create_writer and resume_writer: the checks, the lock, then a writer
writer.py           DatasetWriter: the API of a program that records
session.py          the lock and threads of an open writer, and the errors of a recording
features.py         which features can be recorded, and how info.json describes a camera

frames.py           checks a frame and converts its values
episode_buffer.py   EpisodeBuffer: the frames of the episode being recorded
camera_encoding.py  one thread per camera that encodes and summarises its images
encoder.py          encodes one MP4
encoder_options.py  the user's encoding options, translated for FFmpeg's encoders
episode_stats.py    statistics of columns and cameras, and of several episodes together

rows.py             an episode's rows as Arrow and Parquet
progress.py         counts, tasks and open files after each saved episode
staging.py          .recording/: the folders of saved episodes until finalize()

join.py             joins saved episodes into the dataset's files, and splits them again
metadata.py         the metadata with the saved episodes added
publish.py          joins everything, writes the metadata, moves all files into the dataset
repair.py           excludes damaged saved episodes, so that the others can be published
"""

from robostream.write.encoder import frame_rate
from robostream.write.encoder_options import (
    DepthEncoderConfig,
    VideoEncoderConfig,
    check_encoder,
    ffmpeg_options,
    normal_thread_priority,
)
from robostream.write.episode_buffer import RecordedEpisode, RecordingOptions, encode_episode
from robostream.write.features import video_info
from robostream.write.staging import move_durably
from robostream.write.start import create_writer, resume_writer
from robostream.write.writer import DatasetWriter

__all__ = [
    "DatasetWriter",
    "DepthEncoderConfig",
    "RecordedEpisode",
    "RecordingOptions",
    "VideoEncoderConfig",
    "check_encoder",
    "create_writer",
    "encode_episode",
    "ffmpeg_options",
    "frame_rate",
    "normal_thread_priority",
    "move_durably",
    "resume_writer",
    "video_info",
]
