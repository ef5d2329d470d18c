# SPDX-License-Identifier: Apache-2.0
"""Frame indices on disk, so that a file's index is read once and not once per process and run."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
import zlib
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from robostream.decode.frame_index import CodecConfig, FrameIndex, compact
from robostream.meta import write_bytes_atomic

_VERSION = 1


def load_index(folder: Path, name: str, file_bytes: int) -> FrameIndex | None:
    """Return the index saved for a file, or None if there is none, or one of another size."""
    try:
        with np.load(_path(folder, name), allow_pickle=False) as arrays:
            head = json.loads(str(arrays["head"]))
            if (head["version"], head["file"], head["bytes"]) != (_VERSION, name, file_bytes):
                return None
            return _unpack(head, arrays)
    # A damaged or foreign file is no index: it is built anew and replaced.
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error):
        return None


def save_index(folder: Path, index: FrameIndex) -> None:
    """Save an index: about 3 bytes a frame. Safe with several processes and after a crash."""
    content = io.BytesIO()
    np.savez_compressed(content, allow_pickle=False, **_pack(index))
    write_bytes_atomic(_path(folder, index.file), content.getvalue())


def _path(folder: Path, name: str) -> Path:
    return folder / f"{hashlib.sha256(name.encode()).hexdigest()[:32]}.npz"


def _pack(index: FrameIndex) -> dict[str, npt.NDArray[Any]]:
    """Return arrays of small differences, which compress to almost nothing."""
    head = {
        "version": _VERSION,
        "file": index.file,
        "bytes": index.file_bytes,
        "time_base": [index.time_base.numerator, index.time_base.denominator],
        "configs": [[c.decoder, c.extradata.hex(), c.width, c.height] for c in index.configs],
        "in_order": index.packets is None,
    }
    ends = np.append(0, (index.positions.astype(np.int64) + index.sizes)[:-1])
    order = np.arange(index.num_frames) if index.packets is None else index.packets
    return {
        "head": np.array(json.dumps(head)),
        "sizes": index.sizes,
        "gaps": index.positions - ends,
        "steps": np.diff(index.pts.astype(np.int64), prepend=0),
        "moves": compact(order - np.arange(index.num_frames)),
        "starts": compact(np.diff(index.starts, prepend=0)),
        "start_frames": compact(np.diff(index.start_frames, prepend=0)),
        "start_configs": index.start_configs,
    }


def _unpack(head: dict[str, Any], arrays: Any) -> FrameIndex:
    sizes = arrays["sizes"].astype(np.int64)
    before = np.cumsum(sizes) - sizes
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
        positions=compact(np.cumsum(arrays["gaps"]) + before),
        sizes=compact(sizes),
        starts=compact(np.cumsum(arrays["starts"])),
        start_frames=compact(np.cumsum(arrays["start_frames"])),
        configs=tuple(
            CodecConfig(decoder, bytes.fromhex(extradata), width, height)
            for decoder, extradata, width, height in head["configs"]
        ),
        start_configs=arrays["start_configs"],
    )
