# SPDX-License-Identifier: Apache-2.0
"""Language annotations: the rows that a language column has for a frame, checked and stored."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import pyarrow as pa

from robostream.write.camera_input import Fault
from robostream.write.text_input import text_fault

PERSISTENT = "language_persistent"
# Rows of these styles say something about what one camera sees.
_CAMERA_STYLES = ("vqa", "trace")
_TEXTS = ("role", "content", "style", "camera")


def language_fields(name: str) -> list[str]:
    """Return the fields of a row of a language column; only persistent rows carry a time."""
    timed = ["timestamp"] if name == PERSISTENT else []
    return ["role", "content", "style", *timed, "camera", "tool_calls"]


def accept_rows(name: str, value: Any) -> list[dict[str, Any]] | Fault:
    """Return the rows with every field present and tool calls as JSON texts, or the fault."""
    if value is None:
        return []
    if not isinstance(value, Sequence) or not all(isinstance(row, Mapping) for row in value):
        return Fault(f"want a list of rows (dicts), found {value!r}")
    fields = language_fields(name)
    for row in value:
        if fault := _row_fault(row, fields):
            return Fault(f"{fault}; the row is {dict(row)!r}")
    return [_stored(row, fields) for row in value]


def language_type(name: str) -> pa.DataType:
    """Return the Arrow type of a language column."""
    # Arrow's JSON type came with pyarrow 19; before it, the same texts are plain strings.
    json_type = pa.json_() if hasattr(pa, "json_") else pa.string()
    types = {"timestamp": pa.float32(), "tool_calls": pa.list_(json_type)}
    return pa.list_(pa.struct([(f, types.get(f, pa.string())) for f in language_fields(name)]))


def language_array(name: str, frames: Sequence[Sequence[Mapping[str, Any]]]) -> pa.Array:
    """Return a language column: the accepted rows of each frame."""
    kind = language_type(name)
    rows = [row for frame in frames for row in frame]
    columns = [
        _calls_array([row[field.name] for row in rows], field.type)
        if field.name == "tool_calls"
        else pa.array([row[field.name] for row in rows], field.type)
        for field in kind.value_type
    ]
    stored = pa.StructArray.from_arrays(columns, fields=list(kind.value_type))
    return pa.ListArray.from_arrays(_offsets(frames), stored, type=kind)


def language_schema(name: str) -> dict[str, Any]:
    """Return how the Hugging Face `datasets` library describes a language column."""
    text = {"dtype": "string", "_type": "Value"}
    special = {
        "timestamp": {"dtype": "float32", "_type": "Value"},
        "tool_calls": {"feature": {"_type": "Json"}, "_type": "List"},
    }
    row = {f: special.get(f, text) for f in language_fields(name)}
    return {"feature": row, "_type": "List"}


def _row_fault(row: Mapping[str, Any], fields: Sequence[str]) -> str | None:
    if unknown := [key for key in row if key not in fields]:
        return f"want the fields {', '.join(fields)}, found {', '.join(map(repr, unknown))} too"
    if not isinstance(row.get("role"), str):
        return "want a role (a text)"
    for field in _TEXTS:
        if row.get(field) is not None and (fault := text_fault(row[field])):
            return f"{field}: {fault}"
    if "timestamp" in fields and not isinstance(row.get("timestamp"), int | float):
        return "want a timestamp in seconds"
    if (row.get("style") in _CAMERA_STYLES) != bool(row.get("camera")):
        return f"want a camera for the styles {', '.join(_CAMERA_STYLES)} and for no other"
    return _calls_fault(row.get("tool_calls"))


def _calls_fault(calls: Any) -> str | None:
    if calls is None:
        return None
    if not isinstance(calls, list | tuple):
        return "want a list of tool_calls, or None"
    try:
        text = json.dumps(calls, ensure_ascii=False)
    except (TypeError, ValueError) as error:
        return f"want tool_calls that JSON can store, but {error}"
    fault = text_fault(text)
    return f"tool_calls: {fault}" if fault else None


def _stored(row: Mapping[str, Any], fields: Sequence[str]) -> dict[str, Any]:
    calls = row.get("tool_calls")
    texts = None if calls is None else [json.dumps(call, separators=(",", ":")) for call in calls]
    return {**{field: row.get(field) for field in fields}, "tool_calls": texts}


def _calls_array(calls: Sequence[list[str] | None], kind: pa.DataType) -> pa.Array:
    # Built from its parts, because pa.array() cannot make lists of the JSON type.
    texts = pa.array([text for call in calls for text in call or ()], pa.string())
    if isinstance(kind.value_type, pa.BaseExtensionType):
        texts = kind.value_type.wrap_array(texts)
    missing = pa.array([call is None for call in calls], pa.bool_())
    offsets = _offsets([call or () for call in calls])
    return pa.ListArray.from_arrays(offsets, texts, type=kind, mask=missing)


def _offsets(lists: Sequence[Sequence[Any]]) -> pa.Array:
    return pa.array([0, *accumulate(len(items) for items in lists)], pa.int32())
