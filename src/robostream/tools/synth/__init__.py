# SPDX-License-Identifier: Apache-2.0
"""Synthetic episodes of a robot at a table.

scene/        what happens in an episode, and what cameras see of it
spec.py       SynthSpec: what a dataset shall be
episode.py    one episode: its script and its frames
jobs.py       episodes made by several processes at a time
recording.py  make_dataset: episodes recorded as a LeRobot v3.0 dataset
"""
