# SPDX-License-Identifier: Apache-2.0
"""From decoded frames to pictures in a batch, and the memory that keeps frames in between.

layout.py      how a kept frame lies in its bytes
arena.py       memory of a fixed size, handed out in slots
decoded.py     a decoded picture: its layout, its planes, and where they lie
conversion.py  colours through PyAV, the same with every version of it
from_pyav.py   PyAV's frames as decoded pictures
native.py      colours and copies through FFmpeg's own functions, which is quicker
proof.py       whether these give the very same pictures
render.py      Renderer: frames into batches, frames into kept bytes, kept bytes into batches
scale.py       pictures at another size
parcel.py      4:2:0 pictures that travel as they are, and how to draw them elsewhere
"""
