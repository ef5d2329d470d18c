# SPDX-License-Identifier: Apache-2.0
"""Frame indices on disk, so that a file's index is made once and not once per process and run.

A saved index is a magic word, the digest of what follows, and, compressed, one line of JSON and the
index's arrays as small differences: about 3 bytes a frame.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import zlib
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from robostream.decode.frame_index import CodecConfig, FrameIndex, compact
from robostream.storage import ByteSource, open_private, write_bytes_atomic

_MAGIC = b"rsindex3"
_DIGEST_BYTES = 32

Arrays = dict[str, npt.NDArray[Any]]


def load_index(folder: Path, source: ByteSource, looked_since_s: float) -> FrameIndex | None:
    """Return the index saved for a file.

    Returns None if none was saved, if it was saved for a file of another version or size, or if it
    is damaged. The caller then makes the index and saves it again. Without a version nothing tells
    whether a file was replaced, so its index is taken only if it was made since `looked_since_s`.

    Args:
        folder: Where it would be saved.
        source: The file.
        looked_since_s: If somebody compared it with the file since then, the file is not looked at
            again: it is expected to be the same. So a remote file costs one look per machine and
            run, and all processes of a run read one version.
    """
    path = _path(folder, source.identity)
    try:
        # In this order: of an index that is being replaced, the older time is the one to trust.
        with open(open_private(path, os.O_RDONLY), "rb") as file:
            looked_s, content = os.fstat(file.fileno()).st_mtime, file.read()
    except OSError:
        return None
    body = content[len(_MAGIC) + _DIGEST_BYTES :]
    if content[: -len(body) or None] != _MAGIC + hashlib.sha256(body).digest():
        return None
    head, arrays = _parse(zlib.decompress(body))
    if (head["file"], head["identity"]) != (source.name, source.identity):
        return None
    if looked_s >= looked_since_s:
        source.expect(head["bytes"], head["version"])
    elif not head["version"] or (head["bytes"], head["version"]) != (
        source.size(),
        source.version(),
    ):
        return None
    else:
        _note_look(path)
    return _unpack(head, arrays)


def save_index(folder: Path, index: FrameIndex, source: ByteSource) -> None:
    """Save the index of a file. Safe with several processes and after a crash."""
    head, arrays = _pack(index)
    head |= {"identity": source.identity, "version": source.version()}
    head["arrays"] = [[name, array.dtype.str, len(array)] for name, array in arrays.items()]
    parts = [json.dumps(head).encode(), b"\n", *(array.tobytes() for array in arrays.values())]
    body = zlib.compress(b"".join(parts))
    content = _MAGIC + hashlib.sha256(body).digest() + body
    path = _path(folder, source.identity)
    # Not synced, which would take longer than to build it: its digest shows whether it is complete.
    write_bytes_atomic(path, content, is_private=True, is_durable=False)
    _note_look(path)


def drop_index(folder: Path, source: ByteSource) -> None:
    """Delete the index saved for a file, if there is one."""
    with suppress(OSError):
        _path(folder, source.identity).unlink()


def _note_look(path: Path) -> None:
    """Note that an index was compared with its file now, by this machine's clock."""
    with suppress(OSError):  # another user's, or just replaced
        os.utime(path, times=(time.time(),) * 2, follow_symlinks=False)


def _path(folder: Path, identity: str) -> Path:
    return folder / f"{hashlib.sha256(identity.encode()).hexdigest()[:32]}.index"


def _parse(content: bytes) -> tuple[dict[str, Any], Arrays]:
    line, _, rest = content.partition(b"\n")
    head = json.loads(line)
    arrays: Arrays = {}
    at = 0
    for name, dtype, count in head["arrays"]:
        arrays[name] = np.frombuffer(rest, dtype, count, at)
        at += arrays[name].nbytes
    return head, arrays


def _pack(index: FrameIndex) -> tuple[dict[str, Any], Arrays]:
    head = {
        "file": index.file,
        "bytes": index.file_bytes,
        "time_base": [index.time_base.numerator, index.time_base.denominator],
        "configs": [[c.decoder, c.extradata.hex(), c.width, c.height] for c in index.configs],
        "in_order": index.packets is None,
    }
    ends = np.append(0, (index.byte_offsets.astype(np.int64) + index.sizes)[:-1])
    numbers = np.arange(index.num_frames)
    order = numbers if index.packets is None else index.packets
    arrays = {
        "sizes": index.sizes,
        "gaps": index.byte_offsets - ends,
        "steps": np.diff(index.pts.astype(np.int64), prepend=0),
        "moves": compact(order - numbers),
        "starts": compact(np.diff(index.starts, prepend=0)),
        "start_frames": compact(np.diff(index.start_frames, prepend=0)),
        "start_configs": index.start_configs,
    }
    return head, arrays


def _unpack(head: dict[str, Any], arrays: Arrays) -> FrameIndex:
    sizes = arrays["sizes"].astype(np.int64)
    pts = np.cumsum(arrays["steps"])
    packets = frames = None
    if not head["in_order"]:
        packets = arrays["moves"] + np.arange(len(pts))
        frames = np.full(len(sizes), -1, np.int64)
        frames[packets] = np.arange(len(pts))
    return FrameIndex(
        file=head["file"],
        file_bytes=head["bytes"],
        time_base=Fraction(*head["time_base"]),
        pts=compact(pts),
        packets=None if packets is None else compact(packets),
        frames=None if frames is None else compact(frames),
        byte_offsets=compact(np.cumsum(arrays["gaps"]) + np.cumsum(sizes) - sizes),
        sizes=compact(sizes),
        starts=compact(np.cumsum(arrays["starts"])),
        start_frames=compact(np.cumsum(arrays["start_frames"])),
        configs=tuple(
            CodecConfig(decoder, bytes.fromhex(extradata), width, height)
            for decoder, extradata, width, height in head["configs"]
        ),
        start_configs=arrays["start_configs"],
    )
