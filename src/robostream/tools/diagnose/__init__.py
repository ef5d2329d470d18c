# SPDX-License-Identifier: Apache-2.0
"""Finds out whether an episode can be decoded, and if not, why.

file.py      what a file is by its size, first bytes and boxes, and what is wrong with it
gpu.py       what the machine has for decoding on an NVIDIA GPU
software.py  versions, FFmpeg's libraries and decoders
records.py   the records of what is found out about a camera
dataset.py   whether the dataset can be opened and the episode has rows
stream.py    what the index of a video file says about its video stream
probe.py     decodes one frame, on the CPU or the GPU, without the rest of robostream
advice.py    whether to decode a video on the CPU or on the GPU
video.py     a camera stored as MP4: all of the above
pictures.py  a camera stored as pictures inside Parquet
episode.py   diagnose_episode: all cameras of an episode
report.py    a diagnosis as text and as JSON
"""
