# SPDX-License-Identifier: Apache-2.0
"""A copy of a dataset with its colour videos re-encoded.

recoding.py  recode_dataset: which files are re-encoded, which are copied, and doing it
encoding.py  RecodeSpec, and re-encoding one video file
frames.py    the frames of a video file, and whether a copy has the same
"""
