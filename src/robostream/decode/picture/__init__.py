# SPDX-License-Identifier: Apache-2.0
"""From decoded frames to pictures in a batch, and the memory that keeps frames in between.

layout.py      how a kept frame lies in its bytes
buffer_pool.py        memory of a fixed size, handed out in slots
decoded.py     a decoded picture: its layout, its planes, and where they lie
conversion.py  colour conversion through PyAV, with the same result in every version of it
from_pyav.py   PyAV's frames as decoded pictures
native.py      colour conversion and copies by calling FFmpeg directly, which is faster
proof.py       checks that FFmpeg called directly gives the same pictures as PyAV
render.py      Renderer: frames into batches, frames into kept bytes, kept bytes into batches
scale.py       pictures at another size
parcel.py      4:2:0 pictures that travel as they are, and how to draw them elsewhere
"""
