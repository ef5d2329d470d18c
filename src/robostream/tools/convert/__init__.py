# SPDX-License-Identifier: Apache-2.0
"""A v2.0 or v2.1 dataset as v3.0: few large files instead of one per episode, no re-encoding.

sources.py     what the files of each episode hold, and which of them can share a file
files.py       a file of the copy: joined from the episodes' own, and compared with them
conversion.py  convert_dataset: all of it, in parallel and resumable, and the metadata of the copy
"""
