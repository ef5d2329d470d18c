# SPDX-License-Identifier: Apache-2.0
"""A map-style dataset as most are written, to compare with.

dataset.py            the dataset
pyav_reader.py        its pictures with PyAV
torchcodec_reader.py  its pictures with torchcodec
"""
