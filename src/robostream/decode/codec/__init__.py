# SPDX-License-Identifier: Apache-2.0
"""From frame numbers to decoded frames: which packets, their bytes, and what decodes them.

built_in.py            which codecs the FFmpeg at hand has
runs.py                which packets a set of frames needs
packets.py             the bytes of packets, and which units of the codec they hold
backend.py             the interface of a decoder
pyav_backend.py        bare codec contexts of PyAV, the default
torchcodec_backend.py  torchcodec, if it is installed
"""
