# SPDX-License-Identifier: Apache-2.0
"""The JSON files of meta/: info.json as a record, stats.json as arrays."""

from __future__ import annotations

import dataclasses
import json
import logging
import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from robostream import config
from robostream.errors import MetadataError, RobostreamError, StorageError
from robostream.meta.features import (
    CAMERA_DTYPES,
    Features,
    check_default_features,
    is_depth,
    keys_of_dtype,
    validate_features,
)
from robostream.meta.locate import CONVERTER, check_version
from robostream.storage import check_relative_path

logger = logging.getLogger(__name__)

Stats = dict[str, dict[str, npt.NDArray[Any]]]
"""The statistics of each feature by name: min, max, mean, std, count and quantiles."""

# The largest count of frames, megabytes or the like: more does not fit into 64 bits.
_MOST = 1e18
# numpy stores an array of texts with the length of the longest for each.
_MOST_LETTERS = 1 << 24
_SCALED_STATS = ("min", "max", "mean", "std", "q01", "q10", "q50", "q90", "q99")
# The function that a language model may call if info.json names none.
SAY_TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "say",
        "description": "Say a sentence aloud.",
        "parameters": {
            "type": "object",
            "properties": {"text": {"type": "string", "description": "The sentence."}},
            "required": ["text"],
        },
    },
}


@dataclass(frozen=True, slots=True)
class DatasetInfo:
    """The content of meta/info.json; docs/format.md describes each field."""

    fps: int
    features: Features
    codebase_version: str = config.CODEBASE_VERSION
    total_episodes: int = 0
    total_frames: int = 0
    total_tasks: int = 0
    chunks_size: int = config.CHUNKS_SIZE
    data_files_size_in_mb: float = config.DATA_FILES_SIZE_IN_MB
    video_files_size_in_mb: float = config.VIDEO_FILES_SIZE_IN_MB
    data_path: str = config.DATA_PATH
    video_path: str | None = config.VIDEO_PATH
    robot_type: str | None = None
    splits: dict[str, str] = field(default_factory=dict)
    tools: list[dict[str, Any]] | None = None

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], where: str) -> DatasetInfo:
        """Return the checked record of a parsed info.json; `where` names the file in errors."""
        missing = [key for key in ("codebase_version", "fps", "features") if key not in data]
        if missing:
            raise MetadataError(f"{where}: the required fields {', '.join(missing)} are missing")
        check_version(str(data["codebase_version"]), where)
        known = {f.name for f in dataclasses.fields(cls)}
        unknown = sorted(set(data) - known)
        if unknown:
            logger.warning("%s: ignoring unknown fields %s", where, ", ".join(unknown))
        values = {key: value for key, value in data.items() if key in known}
        values["features"] = validate_features(data["features"], where)
        info = cls(**values)
        info.check(where)
        return info

    def check(self, where: str) -> None:
        """Raise MetadataError if a number is out of range or a camera has no path."""
        for name in ("fps", "chunks_size", "data_files_size_in_mb", "video_files_size_in_mb"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not 0 < value <= _MOST:
                raise MetadataError(
                    f"{where}: {name} must be a number above 0 and at most {_MOST:g}, got "
                    f"{value!r:.200}"
                )
        for name in ("total_episodes", "total_frames", "total_tasks"):
            value = getattr(self, name)
            if not isinstance(value, int) or not 0 <= value <= _MOST:
                raise MetadataError(
                    f"{where}: {name} must be a whole number from 0 to {_MOST:g}, got "
                    f"{value!r:.200}"
                )
        if self.video_keys and not self.video_path:
            raise MetadataError(
                f"{where}: {', '.join(self.video_keys)} are videos but video_path is empty; "
                f"the usual value is {config.VIDEO_PATH!r}"
            )
        _check_template("data_path", self.data_path, config.DATA_PATH, where, [{}])
        if self.video_path is not None:
            names = [{"video_key": key} for key in ("top", *self.video_keys)]
            _check_template("video_path", self.video_path, config.VIDEO_PATH, where, names)
            self._check_paths_differ(where)
        check_default_features(self.features, where)

    def _check_paths_differ(self, where: str) -> None:
        assert self.video_path is not None
        numbers = {"chunk_index": 0, "file_index": 0}
        paths = {self.video_path.format(video_key=key, **numbers) for key in self.video_keys}
        if len(paths) < len(self.video_keys):
            raise MetadataError(
                f"{where}: video_path is {self.video_path!r}, which is the same file for the "
                f"videos {', '.join(self.video_keys)}; want the field {{video_key}} in it. The "
                f"usual value is {config.VIDEO_PATH!r}."
            )

    def data_file(self, chunk: int, file: int) -> str:
        """Return the path of a data file below the root; raise if it leads outside."""
        return check_relative_path(self.data_path.format(chunk_index=chunk, file_index=file))

    def video_file(self, camera: str, chunk: int, file: int) -> str:
        """Return the path of a video below the root; raise if it leads outside."""
        assert self.video_path is not None  # `check`: videos have a path
        path = self.video_path.format(video_key=camera, chunk_index=chunk, file_index=file)
        return check_relative_path(path)

    def to_dict(self) -> dict[str, Any]:
        """Return the content of info.json: shapes as lists, and no `tools` if there are none."""
        data = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        data["features"] = {
            name: {**entry, "shape": list(entry["shape"])} for name, entry in self.features.items()
        }
        if self.tools is None:
            del data["tools"]
        return {"codebase_version": data.pop("codebase_version"), **data}

    def to_json(self) -> str:
        """Return the text of info.json."""
        return json.dumps(self.to_dict(), indent=4, ensure_ascii=False)

    @property
    def video_keys(self) -> list[str]:
        """Cameras stored as MP4."""
        return keys_of_dtype(self.features, ["video"])

    @property
    def image_keys(self) -> list[str]:
        """Cameras stored as images inside Parquet."""
        return keys_of_dtype(self.features, ["image"])

    @property
    def camera_keys(self) -> list[str]:
        """All cameras."""
        return keys_of_dtype(self.features, CAMERA_DTYPES)

    @property
    def depth_keys(self) -> list[str]:
        """Cameras that measure distance."""
        return [key for key in self.camera_keys if is_depth(self.features[key])]


def _check_template(
    name: str, template: Any, usual: str, where: str, names: Sequence[Mapping[str, str]]
) -> None:
    """Raise MetadataError unless a path template leads below the root for all `names`."""
    numbers = {"chunk_index": 0, "file_index": 0}
    try:
        _check_fields(template)
        for fields in names:
            check_relative_path(template.format(**numbers, **fields))
    except StorageError as error:
        raise MetadataError(f"{where}: {name} is {template[:200]!r}: {error}") from error
    except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
        known = ", ".join(f"{{{key}}}" for key in ("video_key", *numbers) if key in usual)
        old = (
            f"It is one of v2.x: convert the dataset with LeRobot ({CONVERTER}). If that was done, "
        )
        cure = f"put the usual value there: {usual!r}."
        raise MetadataError(
            f"{where}: {name} is {template!r}; want a text with the fields {known} and no others "
            f"({type(error).__name__}: {error}). "
            f"{old + cure if 'episode_' in str(template) else cure[0].upper() + cure[1:]}"
        ) from error


def _check_fields(template: str) -> None:
    """Raise ValueError for fields that are more than a number with some digits."""
    for _, field_name, form, conversion in string.Formatter().parse(template):
        is_plain = field_name is None or field_name.isidentifier()
        if not is_plain or conversion or not re.fullmatch(r"(0?\d{1,2}d?)?", form or ""):
            raise ValueError(f"a field {field_name!r} that is no plain number")


def parse_info(text: str | bytes, where: str) -> DatasetInfo:
    """Return the record of info.json's text; `where` names the file in errors."""
    try:
        data = json.loads(text)
        if not isinstance(data, dict):
            raise MetadataError(f"{where}: want a JSON object, got {type(data).__name__}")
        return DatasetInfo.from_dict(data, where)
    except RobostreamError:
        raise  # a RobostreamError may be a ValueError
    except (ValueError, RecursionError) as error:
        raise MetadataError(f"{where}: not valid JSON ({error}). Restore the file.") from error


def parse_stats(text: str | bytes, where: str) -> Stats:
    """Return the statistics of stats.json as arrays of at least one axis."""
    try:
        data = json.loads(text)
        return {
            feature: {name: np.atleast_1d(_as_array(value)) for name, value in entry.items()}
            for feature, entry in data.items()
        }
    except (ValueError, AttributeError, RecursionError) as error:
        raise MetadataError(
            f"{where}: not a JSON object of statistics ({error}). Restore the file, or delete it: "
            "statistics are optional."
        ) from error


def _as_array(value: Any) -> npt.NDArray[Any]:
    count, longest = _measure_texts(value)
    if count * longest > _MOST_LETTERS:
        raise ValueError(f"{count:,} values, one of them a text of {longest:,} letters")
    return np.asarray(value)


def _measure_texts(value: Any) -> tuple[int, int]:
    """Return the number of values, and the length of the longest text among them."""
    if not isinstance(value, list):
        return 1, len(value) if isinstance(value, str) else 0
    found = [_measure_texts(part) for part in value]
    return sum(count for count, _ in found), max((longest for _, longest in found), default=0)


def rescale_depth(stats: Stats, features: Features, unit: str) -> Stats:
    """Return statistics whose depth cameras are in `unit` ("m" or "mm"). Pure but for a warning."""
    factors = {("m", "mm"): 1000.0, ("mm", "m"): 0.001}
    scaled = dict(stats)
    for key in keys_of_dtype(features, CAMERA_DTYPES):
        entry = features[key]
        if key not in stats or not is_depth(entry):
            continue
        recorded = (entry.get("info") or {}).get("depth_unit")
        if recorded is None:
            logger.warning(
                "%s: info.json names no depth_unit; its statistics are not converted", key
            )
        elif recorded != unit:
            scaled[key] = _scale(key, stats[key], factors[recorded, unit])
    return scaled


def _scale(
    key: str, entry: Mapping[str, npt.NDArray[Any]], factor: float
) -> dict[str, npt.NDArray[Any]]:
    for name, value in entry.items():
        if name in _SCALED_STATS and value.dtype.kind not in "iuf":
            raise MetadataError(
                f"{config.STATS_PATH}: want numbers as {name!r} of the depth camera {key!r}, found "
                f"{value.tolist()!r:.200}. Restore the file, or delete it: statistics are optional."
            )
    return {
        name: value * factor if name in _SCALED_STATS else value for name, value in entry.items()
    }
