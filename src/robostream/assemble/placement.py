# SPDX-License-Identifier: Apache-2.0
"""How the samples of several datasets lie in the same batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from robostream.assemble.layout import (
    ArrayLayout,
    BatchLayout,
    CameraLayout,
    SampleLayout,
    SourceLayout,
    array_layout,
)
from robostream.assemble.schema import Affine, Placement, Schema, SourceMap
from robostream.errors import SelectionError
from robostream.plan import Ints


def mixed_batches(
    schema: Schema,
    layouts: Sequence[SampleLayout],
    mappings: Sequence[SourceMap],
    placements: Sequence[Placement],
    first_episodes: Sequence[int],
) -> BatchLayout:
    """Return the layout of batches that hold the samples of several datasets."""
    found = [_mix_camera(schema, n, layouts, mappings) for n in range(len(schema.cameras))]
    of_sources = zip(*(own for _, own in found), strict=True) if found else ((),) * len(layouts)
    sources = map(SourceLayout, layouts, of_sources, first_episodes, placements)
    entries: dict[str, ArrayLayout] = {}
    for vector in schema.vectors:
        steps = schema.windows.get(vector.key)
        entries[vector.key] = array_layout(vector.dtype, vector.shape, steps)
    cameras = tuple(camera for camera, _ in found)
    entries |= {camera.key: camera.batch_array for camera in cameras}
    entries |= {f"{key}_is_pad": ((steps,), np.bool_) for key, steps in schema.windows.items()}
    for key, value in placements[0].constants.items():
        entries.setdefault(key, (value.shape, value.dtype))
    return BatchLayout(entries, [*schema.texts, "task"], cameras, tuple(sources))


def place_source(
    schema: Schema,
    mapping: SourceMap,
    *,
    numbers: Mapping[str, int],
    tasks: Ints,
    scales: Mapping[str, Affine],
) -> Placement:
    """Return where a dataset's values go. Pure.

    `numbers` are the same in all its samples: `dataset_index` and `group_index`. For `tasks` and
    `scales`, see `Placement`.
    """
    parts = mapping.parts(schema)
    constants: dict[str, Any] = {key: np.int64(value) for key, value in numbers.items()}
    constants |= {c.mask: np.bool_(c.key not in parts) for c in schema.cameras if c.has_mask}
    for vector in schema.vectors:
        is_pad, column = np.ones(vector.shape, np.bool_), parts.get(vector.key)
        if column is not None:
            is_pad[..., column.place] = False
        if column is None or column.dims is not None:
            _, dtype = array_layout(vector.dtype, (), None)
            constants[vector.key] = np.zeros((), dtype)
        if vector.has_mask:
            constants[vector.mask] = is_pad
    common = {part.own: key for key, part in parts.items()}
    pads = {own: f"{common[own]}_is_pad" for own in mapping.windows}
    missing = (f"{key}_is_pad" for key in schema.windows)
    constants |= {mask: np.bool_(True) for mask in missing if mask not in pads.values()}
    changed = [c for c in mapping.columns if c.dims is not None or c.own in scales]
    copied = [c for c in mapping.columns if c not in changed and c.own != "task_index"]
    return Placement(
        copied=[(column.own, column.common) for column in copied],
        changed=changed,
        texts={**dict(zip(schema.texts, mapping.texts, strict=True)), "task": "task"},
        pads=pads,
        constants={key: np.asarray(value) for key, value in constants.items()},
        tasks=tasks,
        scales=scales,
    )


def _mix_camera(
    schema: Schema, number: int, layouts: Sequence[SampleLayout], mappings: Sequence[SourceMap]
) -> tuple[CameraLayout, list[CameraLayout | None]]:
    """Return a camera of a mixture's batches, and each dataset's own layout of it."""
    wanted, keys = schema.cameras[number], [mapping.cameras[number] for mapping in mappings]
    own = [
        next((camera for camera in layout.cameras if camera.key == key), None)
        for layout, key in zip(layouts, keys, strict=True)
    ]
    cameras = [camera for camera in own if camera is not None]
    # As for a dataset alone, videos decide on the type, and on the axis of a window of one frame.
    videos = (
        c for c, one in zip(own, layouts, strict=True) if c and c.key in one.dataset.spec.videos
    )
    common = replace(
        next(videos, cameras[0]),
        key=wanted.key,
        decoded_bytes=max(c.decoded_bytes for c in cameras),
        cached_bytes=max(c.cached_bytes for c in cameras),
        gop_frames=max(c.gop_frames for c in cameras),
        has_long_gops=any(c.has_long_gops for c in cameras),
        is_transformed=any(c.is_transformed for c in cameras),
    )
    for camera in cameras:
        if camera.stack != common.stack:
            raise SelectionError(
                f"the images under {wanted.key} have unlike shapes: {common.stack[1:]} and "
                f"{camera.stack[1:]} (channels, height, width). Give their size in the schema."
            )
    shape, dtype = common.shape, common.dtype
    return common, [camera and replace(camera, shape=shape, dtype=dtype) for camera in own]
