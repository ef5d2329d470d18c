# SPDX-License-Identifier: Apache-2.0
"""An episode's rows as the Arrow table that LeRobot's recorder would write. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from robostream.meta import Features
from robostream.write.language_rows import language_array, language_schema, language_type

_IMAGE_TYPE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
# An Arrow array holds at most 2 GiB of bytes, so a column of images is built in pieces.
_IMAGES_PER_PIECE = 256

Array = npt.NDArray[Any]


def row_schema(features: Features) -> pa.Schema:
    """Return the schema of data files: all features but videos.

    It also describes them for Hugging Face's `datasets` library.
    """
    stored = {name: entry for name, entry in features.items() if entry["dtype"] != "video"}
    described = {name: _hf_feature(name, entry) for name, entry in stored.items()}
    fields = [_field(name, entry) for name, entry in stored.items()]
    return pa.schema(fields, {"huggingface": json.dumps({"info": {"features": described}})})


def row_table(features: Features, columns: Mapping[str, Any]) -> pa.Table:
    """Return an episode's rows.

    Args:
        features: All features of the dataset.
        columns: By feature: numbers as one array with frames first, texts and language rows as
            lists, images as lists of encoded bytes.
    """
    schema = row_schema(features)
    arrays = [
        _column(name, schema.field(name).type, features[name], columns[name])
        for name in schema.names
    ]
    return pa.table(arrays, schema=schema)


def _hf_feature(name: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    dtype, shape = entry["dtype"], entry["shape"]
    if dtype == "image":
        return {"_type": "Image"}
    if dtype == "language":
        return language_schema(name)
    value = {"dtype": _value_name(dtype), "_type": "Value"}
    if shape == (1,):
        return value
    if len(shape) == 1:
        return {"feature": value, "length": shape[0], "_type": "List"}
    return {"shape": list(shape), "dtype": _value_name(dtype), "_type": f"Array{len(shape)}D"}


def _field(name: str, entry: Mapping[str, Any]) -> pa.Field:
    dtype, shape = entry["dtype"], entry["shape"]
    if dtype == "image":
        return pa.field(name, _IMAGE_TYPE)
    if dtype == "language":
        return pa.field(name, language_type(name))
    value = pa.string() if dtype == "string" else pa.from_numpy_dtype(np.dtype(dtype))
    if shape == (1,):
        return pa.field(name, value)
    if len(shape) == 1:
        return pa.field(name, pa.list_(value, shape[0]))
    for _ in shape:
        value = pa.list_(value)
    # The `datasets` library knows arrays of 2 to 5 axes by the name of an extension type, which is
    # written into the field's metadata.
    kind = f"datasets.features.features.Array{len(shape)}DExtensionType"
    extension = {
        "ARROW:extension:name": kind,
        "ARROW:extension:metadata": json.dumps([list(shape), _value_name(dtype)]),
    }
    return pa.field(name, value, metadata=extension)


def _value_name(dtype: str) -> str:
    return "string" if dtype == "string" else np.dtype(dtype).name


def _column(name: str, kind: pa.DataType, entry: Mapping[str, Any], values: Any) -> Any:
    if entry["dtype"] == "image":
        return _image_column(values)
    if entry["dtype"] == "language":
        return language_array(name, values)
    if entry["dtype"] == "string":
        return pa.array(values, kind)
    return _number_column(kind, entry["shape"], values.astype(entry["dtype"], copy=False))


def _number_column(kind: pa.DataType, shape: Sequence[int], values: Array) -> pa.Array:
    flat = pa.array(values.reshape(-1))
    if tuple(shape) == (1,):
        return flat
    if len(shape) == 1:
        return pa.FixedSizeListArray.from_arrays(flat, type=kind)
    for length in reversed(shape):
        offsets = np.arange(0, len(flat) + 1, length, dtype=np.int32)
        flat = pa.ListArray.from_arrays(offsets, flat)
    return flat


def _image_column(images: Sequence[tuple[str, bytes]]) -> pa.ChunkedArray:
    pieces = [
        pa.StructArray.from_arrays(
            [pa.array([b for _, b in piece], pa.binary()), pa.array([n for n, _ in piece])],
            fields=list(_IMAGE_TYPE),
        )
        for piece in _pieces(images)
    ]
    return pa.chunked_array(pieces, _IMAGE_TYPE)


def _pieces(images: Sequence[tuple[str, bytes]]) -> Iterator[list[tuple[str, bytes]]]:
    rest = iter(images)
    while piece := list(islice(rest, _IMAGES_PER_PIECE)):
        yield piece
