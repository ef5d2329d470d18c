# SPDX-License-Identifier: Apache-2.0
"""Which frames a video file has: where each lies, when it is shown, where decoding it starts.

mp4.py          the sample table of an MP4, from its moov box alone
frame_index.py  FrameIndex: the frames of a file, and the one rule that matches times to frames
indexing.py     builds the index of a file, through FFmpeg where its table is unusual
index_cache.py  indices on disk
"""
