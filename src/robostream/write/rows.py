# SPDX-License-Identifier: Apache-2.0
"""An episode's rows as the Arrow table and Parquet row group that LeRobot's recorder writes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from robostream.meta import Features

# LeRobot's settings, plus checksums, so that readers detect damaged pages.
PARQUET_OPTIONS = {"compression": "snappy", "use_dictionary": True, "write_page_checksum": True}
# Arrow's JSON type came with pyarrow 19; before it, the same texts are plain strings.
_JSON = pa.json_() if hasattr(pa, "json_") else pa.string()
_IMAGE_TYPE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
_TEXT = {"dtype": "string", "_type": "Value"}
_LANGUAGE_DESCRIPTIONS: dict[str, dict[str, Any]] = {
    "timestamp": {"dtype": "float32", "_type": "Value"},
    "tool_calls": {"feature": {"_type": "Json"}, "_type": "List"},
}
# An Arrow array holds at most 2 GiB of bytes, so a column of images consists of chunks.
_IMAGES_PER_CHUNK = 256


def row_schema(features: Features) -> pa.Schema:
    """Return the schema of the data files, with the metadata that `datasets` reads. Pure."""
    stored = {n: _describe(n, entry) for n, entry in features.items() if entry["dtype"] != "video"}
    described = {name: description for name, (_, description) in stored.items()}
    fields = [field for field, _ in stored.values()]
    return pa.schema(fields, {"huggingface": json.dumps({"info": {"features": described}})})


def row_table(features: Features, columns: Mapping[str, Any]) -> pa.Table:
    """Return an episode's rows. Pure.

    Args:
        features: All features of the dataset.
        columns: By feature: an array of numbers with frames first, a list of texts or of language
            rows, or a list of (name, encoded bytes) of images.
    """
    schema = row_schema(features)
    arrays = [_column(field, features[field.name], columns[field.name]) for field in schema]
    return pa.table(arrays, schema=schema)


def language_fields(name: str) -> list[str]:
    """Return the fields of a row of a language column; only persistent rows carry a time."""
    timed = ["timestamp"] if name == "language_persistent" else []
    return ["role", "content", "style", *timed, "camera", "tool_calls"]


def language_array(name: str, frames: Sequence[Sequence[Mapping[str, Any]]]) -> pa.Array:
    """Return a language column from the checked rows of each frame. Pure."""
    # pa.array() cannot make values of the JSON type, but their texts can be cast to it.
    return pa.array(frames, _language_type(name, pa.string())).cast(_language_type(name))


def read_rows(path: Path) -> pa.Table:
    """Return all rows of a file; raises a pyarrow error if a page is damaged."""
    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        return file.read(use_threads=False)


def write_rows(table: pa.Table, target: Path) -> int:
    """Write one episode's rows and return the compressed bytes of its row group."""
    with pq.ParquetWriter(target, table.schema, **PARQUET_OPTIONS) as writer:
        writer.write_table(table, row_group_size=max(1, table.num_rows))
    group = pq.read_metadata(target).row_group(0)
    return sum(group.column(i).total_compressed_size for i in range(group.num_columns))


def join_rows(parts: Sequence[Path], target: Path, schema: pa.Schema | None = None) -> None:
    """Write the rows of several episodes into one file, one row group each.

    The file has the columns and metadata of `schema`; by default those of the first part.
    """
    chosen = pq.read_schema(parts[0]) if schema is None else schema
    with pq.ParquetWriter(target, chosen, **PARQUET_OPTIONS) as writer:
        for part in parts:
            table = read_rows(part).select(chosen.names)
            writer.write_table(table, row_group_size=max(1, table.num_rows))


def split_rows(joined: Path, targets: Sequence[Path]) -> None:
    """Write each episode of a joined file into a file of its own: the reverse of `join_rows`."""
    with pq.ParquetFile(joined, page_checksum_verification=True) as file:
        for group, target in enumerate(targets):
            write_rows(file.read_row_group(group), target)


def _describe(name: str, entry: Mapping[str, Any]) -> tuple[pa.Field, dict[str, Any]]:
    """Return a feature's Arrow field and its description in the `datasets` library."""
    dtype, shape = entry["dtype"], entry["shape"]
    if dtype == "image":
        return pa.field(name, _IMAGE_TYPE), {"_type": "Image"}
    if dtype == "language":
        row = {f: _LANGUAGE_DESCRIPTIONS.get(f, _TEXT) for f in language_fields(name)}
        return pa.field(name, _language_type(name)), {"feature": row, "_type": "List"}
    is_text = dtype == "string"
    value = pa.string() if is_text else pa.from_numpy_dtype(np.dtype(dtype))
    value_name = "string" if is_text else np.dtype(dtype).name
    described = {"dtype": value_name, "_type": "Value"}
    if shape == (1,):
        return pa.field(name, value), described
    if len(shape) == 1:
        listed = {"feature": described, "length": shape[0], "_type": "List"}
        return pa.field(name, pa.list_(value, shape[0])), listed
    for _ in shape:
        value = pa.list_(value)
    # `datasets` recognises arrays of 2 to 5 axes by an extension type in the field's metadata.
    kind = f"Array{len(shape)}D"
    extension = {
        "ARROW:extension:name": f"datasets.features.features.{kind}ExtensionType",
        "ARROW:extension:metadata": json.dumps([list(shape), value_name]),
    }
    described = {"shape": list(shape), "dtype": value_name, "_type": kind}
    return pa.field(name, value, metadata=extension), described


def _language_type(name: str, call_type: pa.DataType = _JSON) -> pa.DataType:
    types = {"timestamp": pa.float32(), "tool_calls": pa.list_(call_type)}
    return pa.list_(pa.struct([(f, types.get(f, pa.string())) for f in language_fields(name)]))


def _column(field: pa.Field, entry: Mapping[str, Any], values: Any) -> Any:
    if entry["dtype"] == "image":
        return _image_column(values)
    if entry["dtype"] == "language":
        return language_array(field.name, values)
    if entry["dtype"] == "string":
        return pa.array(values, field.type)
    return _number_column(field.type, entry["shape"], values.astype(entry["dtype"], copy=False))


def _number_column(kind: pa.DataType, shape: Sequence[int], values: npt.NDArray[Any]) -> pa.Array:
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
    chunks = []
    for start in range(0, len(images), _IMAGES_PER_CHUNK):
        names, contents = zip(*images[start : start + _IMAGES_PER_CHUNK], strict=True)
        arrays = [pa.array(contents, pa.binary()), pa.array(names)]
        chunks.append(pa.StructArray.from_arrays(arrays, fields=list(_IMAGE_TYPE)))
    return pa.chunked_array(chunks, _IMAGE_TYPE)
