# SPDX-License-Identifier: Apache-2.0
"""Recording: frames in, a LeRobot v3.0 dataset out.

A frame's way, from top to bottom:

start.py              create_writer and resume_writer: the checks, the lock, then a writer
writer.py             DatasetWriter: what a program that records calls
lock.py               one writer per dataset
held.py               what an open writer holds, and giving it back if the program drops the writer
failures.py           errors of the disk or an encoder become WriteErrors

recorded_features.py  which features can be recorded, and by which encoder
frame_check.py        every fault of a frame given to add_frame()
camera_input.py       a camera's value in a frame, as pixels
text_input.py         whether a text in a frame can be stored as UTF-8
language_rows.py      language annotations: checked, and as an Arrow column

episode_buffer.py     EpisodeBuffer: the frames of the episode that is being recorded
apart.py              an episode recorded in another process, to be saved later
camera_thread.py      the thread that encodes one camera's images while recording goes on
camera_sink.py        what that thread does with an image: encode it and summarise it
encoder.py            one MP4 that is being encoded
encoder_options.py    the user's options of encoding, and as FFmpeg's encoders take them
ordinary_threads.py   encoders that raise their own priority are put back in line
camera_summary.py     the statistics of a camera's images
episode_stats.py      the statistics of columns, and of several episodes together

saved_so_far.py       counts, tasks and open files after each saved episode
file_places.py        which file of the dataset an episode goes to
row_table.py          an episode's rows as an Arrow table
video_info.py         what info.json says about a camera
staging.py            .recording/: the folders of saved episodes until finalize()

jobs.py               which saved episodes make up which file
join_data.py          joins the rows of several episodes into one Parquet file, and splits it again
join_video.py         joins the videos of several episodes into one MP4, and splits it again
tables.py             the metadata with the saved episodes in it
episode_fault.py      what is wrong with a saved episode
bad_episodes.py       damaged episodes are set aside, so that the others can be published
renumber.py           new numbers for the saved episodes after one that was set aside
publish.py            joins everything, writes the metadata, moves all files into the dataset
"""

from robostream.write.apart import EpisodeApart, record_apart
from robostream.write.encoder import frame_rate
from robostream.write.encoder_options import (
    DepthEncoderConfig,
    VideoEncoderConfig,
    check_encoder,
    ffmpeg_options,
)
from robostream.write.episode_buffer import RecordingOptions
from robostream.write.ordinary_threads import ordinary_threads
from robostream.write.staging import place_whole
from robostream.write.start import create_writer, resume_writer
from robostream.write.video_info import video_info
from robostream.write.writer import DatasetWriter

__all__ = [
    "DatasetWriter",
    "DepthEncoderConfig",
    "EpisodeApart",
    "RecordingOptions",
    "VideoEncoderConfig",
    "check_encoder",
    "create_writer",
    "ffmpeg_options",
    "frame_rate",
    "ordinary_threads",
    "place_whole",
    "record_apart",
    "resume_writer",
    "video_info",
]
