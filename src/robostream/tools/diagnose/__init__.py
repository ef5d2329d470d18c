# SPDX-License-Identifier: Apache-2.0
"""Finds out whether an episode can be decoded, and if not, why.

episode.py  diagnose_episode: the dataset, the episode's rows, and each of its cameras
file.py     what a file contains, by its size, first bytes and boxes, and what is wrong with it
machine.py  versions, FFmpeg's libraries and decoders, the GPU, and where to decode
records.py  what is found out about a camera
stream.py   the video stream of a file: codec, rate, key frames, and one decoded frame
video.py    checks a camera stored as MP4
report.py   a diagnosis as text and as JSON
"""
