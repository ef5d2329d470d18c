# SPDX-License-Identifier: Apache-2.0
"""From frame numbers to decoded frames: which packets, their bytes, and what decodes them.

runs.py                which packets a set of frames needs
packets.py             their bytes, and what units lie in them
backend.py             the interface of a decoder
pyav_backend.py        bare codec contexts of PyAV, the default
torchcodec_backend.py  torchcodec, where it is installed
"""
