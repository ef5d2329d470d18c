# SPDX-License-Identifier: Apache-2.0
"""Recording: frames in, a LeRobot v3.0 dataset out.

The files, in the order in which a frame passes through them:

start.py            create_writer and resume_writer: checks, lock, repair of damaged episodes
writer.py           DatasetWriter: the API of a program that records
frames.py           which features can be recorded; checks a frame and converts its values
episode_buffer.py   EpisodeBuffer: the episode being recorded, with one thread per camera
encoder.py          encodes and summarises one camera's images of an episode
encoder_options.py  the user's encoding options, translated for FFmpeg's encoders
staging.py          .recording/: its folders, the lock, and durable moves
saved_episodes.py   records of saved episodes, and the numbers and files of the next one
join.py             rows as Parquet; joins saved episodes into files, and splits them again
publish.py          writes the metadata, moves all files into the dataset; uploads it to the Hub
"""

from robostream.write.encoder import (
    EpisodeFile,
    add_stream,
    digest,
    encode_frame,
    frame_rate,
    video_info,
)
from robostream.write.encoder_options import (
    DepthEncoderConfig,
    RecordingOptions,
    VideoEncoderConfig,
    check_encoder,
    normal_thread_priority,
)
from robostream.write.episode_buffer import RecordedEpisode, encode_episode
from robostream.write.join import (
    PARQUET_OPTIONS,
    JoinJob,
    VideoPart,
    iter_packets,
    join_videos,
    plan_joins,
    read_rows,
    row_schema,
    split_videos,
)
from robostream.write.publish import (
    episode_row,
    episode_table_files,
    metadata_files,
    push_dataset,
    write_metadata_file,
)
from robostream.write.saved_episodes import FilePlace, FileTotals, StagedEpisode, place_files
from robostream.write.staging import move_durably
from robostream.write.start import create_writer, resume_writer
from robostream.write.writer import DatasetWriter, describe_free_space
