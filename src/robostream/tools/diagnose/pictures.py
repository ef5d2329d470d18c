# SPDX-License-Identifier: Apache-2.0
"""A camera stored as pictures inside Parquet: its file, its first picture, and decoding all."""

from __future__ import annotations

import time
from dataclasses import replace

from robostream.assemble import OpenedDataset, RowReader, read_picture
from robostream.errors import DataFileError, StorageError
from robostream.meta import image_shape, is_depth
from robostream.tools.diagnose.file import Problem, check_file, unreadable
from robostream.tools.diagnose.records import CameraCheck, Rate, note_size, summarise_picture

_CURE = "Copy or download the file again, or record the episode anew."


def check_pictures(dataset: OpenedDataset, key: str, episode: int) -> CameraCheck:
    """Return all that can be found out about a camera stored in Parquet."""
    meta = dataset.meta
    path = meta.get_data_file_path(episode).as_posix()
    file = check_file(dataset.files, path, want="parquet")
    check = CameraCheck(key, "image", file)
    if file.problem is not None:
        return replace(check, problems=(file.problem,))
    began = time.perf_counter()
    encoded = _read(dataset, key, episode)
    if isinstance(encoded, Problem):
        return replace(check, problems=(encoded,))
    read = time.perf_counter()
    channels, _, _ = image_shape(meta.features[key])
    for frame, content in enumerate(encoded):
        place = f"{file.path}: {key}, episode {episode}, frame {frame}"
        try:
            values = read_picture(content, where=place, channels=channels)
        except DataFileError as error:
            return replace(check, problems=(Problem("damaged", str(error), _CURE),))
        if not frame:
            depth_name = "depth" if is_depth(meta.features[key]) else None
            picture = summarise_picture(values, depth_name=depth_name)
            notes = note_size(picture, meta.features[key])
            check = replace(check, picture=picture, notes=notes)
    rate = Rate(
        images=len(encoded),
        images_per_s=len(encoded) / max(time.perf_counter() - read, 1e-9),
        read_s=read - began,
        read_bytes=sum(map(len, encoded)),
    )
    return replace(check, rate=rate)


def _read(dataset: OpenedDataset, key: str, episode: int) -> list[bytes] | Problem:
    reader = RowReader(dataset, dataset.file_opener(), [key])
    try:
        rows = reader.read(episode)
    except DataFileError as error:
        return Problem("damaged", str(error), _CURE)
    except StorageError as error:
        return unreadable(error)
    finally:
        reader.close()
    return [rows.object_at(key, frame) or b"" for frame in range(rows.length)]
