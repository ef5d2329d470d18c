# SPDX-License-Identifier: Apache-2.0
"""`bench peers`: robostream beside other loaders on the same files, in one interleaved run.

command.py           configure and run, for the command line
contest.py           all in turn, several rounds
contestants.py       who takes part, what each needs, and how it is opened
plain.py             a map-style dataset as most are written
plain_pyav.py        its pictures with PyAV
plain_torchcodec.py  its pictures with torchcodec
hf_datasets.py       pictures in Parquet, through Hugging Face's datasets
one_run.py           the process started for each measurement
delivery.py          what a contestant delivered: each frame once? the right pictures? which order?
truth.py             the right pictures, decoded file by file
table.py             the figures as a table, and in the documents
"""
