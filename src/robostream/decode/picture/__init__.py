# SPDX-License-Identifier: Apache-2.0
"""From decoded frames to pictures in a batch, and the memory that keeps frames in between.

layout.py      how a kept frame lies in its bytes
arena.py       memory of a fixed size, handed out in slots
conversion.py  colour conversion through PyAV, with the same result in every version of it
native.py      colour conversion and copies by calling FFmpeg directly, which is faster
proof.py       checks that FFmpeg called directly gives the same pictures as PyAV
render.py      Renderer: frames into batches, frames into kept bytes, kept bytes into batches
"""
