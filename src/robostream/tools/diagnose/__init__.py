# SPDX-License-Identifier: Apache-2.0
"""Why an episode does not decode, or that it does.

file.py      what a file really is: size, first bytes, boxes, and what is wrong
gpu.py       what the machine has for decoding on an NVIDIA GPU
software.py  versions, FFmpeg's libraries and decoders
records.py   what is found out about a camera, as records
dataset.py   whether the dataset can be opened and the episode has rows
stream.py    what a video file's index tells about its stream
probe.py     one frame straight out of a decoder, on the CPU or the GPU
video.py     a camera stored as MP4: all of the above
pictures.py  a camera stored as pictures inside Parquet
episode.py   diagnose_episode: all cameras of an episode
report.py    a diagnosis as text and as JSON
"""
