# SPDX-License-Identifier: Apache-2.0
"""Finds out whether an episode can be decoded, and if not, why.

machine.py  versions, FFmpeg's libraries and decoders, the GPU, and where to decode
file.py     what a file contains, by its size, first bytes and boxes, and what is wrong with it
camera.py   the findings about a camera, and the check of one stored as images
video.py    the check of a camera stored as MP4: its stream, its times, and decoding it
episode.py  diagnose_episode: the dataset, the episode's rows, and each of its cameras
report.py   a diagnosis as text and as JSON
"""
