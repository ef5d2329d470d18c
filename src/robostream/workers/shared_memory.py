# SPDX-License-Identifier: Apache-2.0
"""Memory that several processes map, and objects whose arrays lie in it.

The memory has no name: a process gets it as a file descriptor from another. The system frees it
when the last process that has it ends, in whatever way. It is not in /dev/shm, which is small in
containers.
"""

from __future__ import annotations

import mmap
import os
import pickle
import struct
import tempfile
from typing import Any

import cloudpickle
import numpy as np
import numpy.typing as npt

from robostream.byte_sizes import format_bytes
from robostream.errors import WorkerError

_LENGTH = struct.Struct("<Q")
_ALIGN = 64
LESS_MEMORY = (
    "Lower frame_cache_bytes, batch_size, prefetch_factor or num_workers, or raise the limits of "
    "the process (ulimit -v, ulimit -f)."
)


def create_memory(nbytes: int) -> int:
    """Return a descriptor of `nbytes` of zeros; a page takes memory once it is written to."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("robostream", os.MFD_CLOEXEC)
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    try:
        os.ftruncate(fd, max(nbytes, 1))
    except (OSError, OverflowError) as error:
        os.close(fd)
        raise _refused(nbytes, error) from error
    return fd


def map_memory(fd: int) -> npt.NDArray[np.uint8]:
    """Return the memory behind a descriptor, which may be closed afterwards."""
    return np.frombuffer(_map(fd, mmap.PROT_READ | mmap.PROT_WRITE), np.uint8)


def pack(content: object) -> int:
    """Return a descriptor of memory that holds a copy of an object.

    All processes that unpack it share the memory of its arrays. Functions and classes that a script
    or a notebook defines are copied whole; of those in modules, only the name is.
    """
    buffers: list[pickle.PickleBuffer] = []
    head = cloudpickle.dumps(content, protocol=5, buffer_callback=buffers.append)
    parts = [memoryview(head), *(buffer.raw() for buffer in buffers)]
    sizes = struct.pack(f"<{len(parts)}Q", *(part.nbytes for part in parts))
    fd = create_memory(_LENGTH.size + len(sizes) + sum(_padded(part.nbytes) for part in parts))
    memory = map_memory(fd)
    at = _write(memory, 0, _LENGTH.pack(len(parts)))
    at = _write(memory, at, sizes)
    for part in parts:
        _write(memory, at, part)
        at += _padded(part.nbytes)
    return fd


def unpack(fd: int) -> Any:
    """Return the object; its arrays lie in the shared memory and must not be written to."""
    memory = memoryview(_map(fd, mmap.PROT_READ))
    (count,) = _LENGTH.unpack_from(memory, 0)
    sizes = struct.unpack_from(f"<{count}Q", memory, _LENGTH.size)
    at = _LENGTH.size + 8 * count
    parts = []
    for size in sizes:
        parts.append(memory[at : at + size])
        at += _padded(size)
    return pickle.loads(parts[0], buffers=parts[1:])


def _map(fd: int, access: int) -> mmap.mmap:
    nbytes = os.fstat(fd).st_size
    try:
        return mmap.mmap(fd, nbytes, prot=access)
    except (OSError, OverflowError, ValueError) as error:
        raise _refused(nbytes, error) from error


def _refused(nbytes: int, error: Exception) -> WorkerError:
    needed, why = format_bytes(nbytes), getattr(error, "strerror", None) or error
    return WorkerError(f"the loader needs {needed} of memory in one piece: {why}. {LESS_MEMORY}")


def _write(memory: npt.NDArray[np.uint8], at: int, content: bytes | memoryview) -> int:
    part = np.frombuffer(content, np.uint8)
    memory[at : at + len(part)] = part
    return at + len(part)


def _padded(nbytes: int) -> int:
    return -(-nbytes // _ALIGN) * _ALIGN
