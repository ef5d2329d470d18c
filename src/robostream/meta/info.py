# SPDX-License-Identifier: Apache-2.0
"""info.json as a checked record; the same record for v2.0, v2.1 and v3.0."""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

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
from robostream.meta.locate import CONVERTER, check_version, parse_version
from robostream.storage import check_relative_path

logger = logging.getLogger(__name__)

# The largest count of frames, megabytes or the like: more does not fit into 64 bits.
_MOST = 1e18
# The fields of path templates. In v2.x, the number of an episode is that of its files.
_FIELDS = {3: ("chunk_index", "file_index"), 2: ("episode_chunk", "episode_index")}
# Fields of v2.x that v3.0 does not have, and the other way round.
_ONLY_V2 = ("total_chunks", "total_videos")
_ONLY_V3 = ("data_files_size_in_mb", "video_files_size_in_mb")
_PATHS = {"data_path": config.DATA_PATH, "video_path": config.VIDEO_PATH}
_V2_PATHS = {"data_path": config.V2_DATA_PATH, "video_path": config.V2_VIDEO_PATH}
_SIZES = ("fps", "chunks_size", "data_files_size_in_mb", "video_files_size_in_mb")
_TOTALS = ("total_episodes", "total_frames", "total_tasks")
_V2_NUMBERS = ("fps", "chunks_size", *_TOTALS)
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
    """The content of meta/info.json.

    Attributes:
        fps: Frames per second of all episodes.
        features: The content of a frame, by feature.
        codebase_version: The version of the format, such as "v3.0".
        total_episodes: Number of episodes.
        total_frames: Number of frames of all episodes.
        total_tasks: Number of task texts.
        chunks_size: The most files in one chunk folder.
        data_files_size_in_mb: The size at which a recorder begins a new Parquet file.
        video_files_size_in_mb: The size at which a recorder begins a new MP4 file.
        data_path: The template of Parquet paths.
        video_path: The template of MP4 paths; None if no camera may be a video.
        robot_type: The robot the data was recorded on.
        splits: Ranges of episodes by name, such as `{"train": "0:50"}`.
        tools: Functions that a language model may call; None for the default, "say".
    """

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
        version = str(data["codebase_version"])
        is_v2 = check_version(version, where)[0] == 2
        known = {f.name for f in dataclasses.fields(cls)}
        unknown = sorted(set(data) - known - set(_ONLY_V2 if is_v2 else ()))
        if unknown:
            logger.warning("%s: ignoring unknown fields %s", where, ", ".join(unknown))
        values = {key: value for key, value in data.items() if key in known}
        values["codebase_version"] = version
        values["features"] = validate_features(data["features"], where)
        info = cls(**(_with_v2_defaults(values) if is_v2 else values))
        info.check(where)
        return info

    def check(self, where: str) -> None:
        """Raise MetadataError if a number is out of range or a camera has no path."""
        # In v2.x, the chunk of an episode follows from chunks_size.
        counts = [*_TOTALS, "chunks_size"] if self.is_v2 else _TOTALS
        above = int | float, math.ulp(0), f"a number above 0 and at most {_MOST:g}"
        whole = int, 0, f"a whole number from 0 to {_MOST:g}"
        limits = [(name, above) for name in _SIZES] + [(name, whole) for name in counts]
        for name, (kind, least, wanted) in limits:
            value = getattr(self, name)
            if not isinstance(value, kind) or not least <= value <= _MOST:
                raise MetadataError(f"{where}: {name} must be {wanted}, got {value!r:.200}")
        usual = _V2_PATHS if self.is_v2 else _PATHS
        if self.video_keys and not self.video_path:
            raise MetadataError(
                f"{where}: {', '.join(self.video_keys)} are videos but video_path is empty; "
                f"the usual value is {usual['video_path']!r}"
            )
        self._check_template("data_path", usual["data_path"], where, [{}])
        if self.video_path is not None:
            names = [{"video_key": key} for key in ("top", *self.video_keys)]
            self._check_template("video_path", usual["video_path"], where, names)
            files = {_fill_path(self.video_path, 0, 0, key) for key in self.video_keys}
            if len(files) < len(self.video_keys):
                raise MetadataError(
                    f"{where}: video_path is {self.video_path!r}, which is the same file for the "
                    f"videos {', '.join(self.video_keys)}; want the field {{video_key}} in it. The "
                    f"usual value is {usual['video_path']!r}."
                )
        check_default_features(self.features, where)

    def _check_template(
        self, name: str, usual: str, where: str, names: Sequence[Mapping[str, str]]
    ) -> None:
        """Raise MetadataError unless a path template leads below the root for all `names`."""
        template = getattr(self, name)
        numbers = dict.fromkeys(_FIELDS[2 if self.is_v2 else 3], 0)
        try:
            _check_fields(template, needed="episode_index" if self.is_v2 else None)
            for fields in names:
                check_relative_path(template.format(**numbers, **fields))
        except StorageError as error:
            raise MetadataError(f"{where}: {name} is {template[:200]!r}: {error}") from error
        except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
            known = ", ".join(f"{{{key}}}" for key in ("video_key", *numbers) if key in usual)
            cure = f"put the usual value there: {usual!r}."
            old = f"It is one of v2.x: convert the dataset ({CONVERTER}). If that was done, "
            is_old = not self.is_v2 and "episode_" in str(template)
            raise MetadataError(
                f"{where}: {name} is {template!r}; want a text with the fields {known} and no "
                f"others ({type(error).__name__}: {error}). "
                f"{old + cure if is_old else cure[0].upper() + cure[1:]}"
            ) from error

    def data_file(self, chunk: int, file: int) -> str:
        """Return the path of a data file below the root; raise if it leads outside."""
        return check_relative_path(_fill_path(self.data_path, chunk, file))

    def video_file(self, camera: str, chunk: int, file: int) -> str:
        """Return the path of a video below the root; raise if it leads outside."""
        assert self.video_path is not None  # `check`: videos have a path
        return check_relative_path(_fill_path(self.video_path, chunk, file, camera))

    def to_dict(self) -> dict[str, Any]:
        """Return the content of info.json: shapes as lists, and no `tools` if there are none."""
        data = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        data["features"] = {
            name: {**entry, "shape": list(entry["shape"])} for name, entry in self.features.items()
        }
        absent = _ONLY_V3 if self.is_v2 else ()
        for name in (*absent, *(["tools"] if self.tools is None else [])):
            del data[name]
        return {"codebase_version": data.pop("codebase_version"), **data}

    def to_json(self) -> str:
        """Return the text of info.json."""
        return json.dumps(self.to_dict(), indent=4, ensure_ascii=False)

    @property
    def is_v2(self) -> bool:
        """Whether the files are those of v2.0 or v2.1: one of each kind per episode."""
        return (parse_version(self.codebase_version) or (3, 0))[0] == 2

    @property
    def tasks_path(self) -> str:
        """The file of the task texts, for messages."""
        return config.V2_TASKS_PATH if self.is_v2 else config.TASKS_PATH

    @property
    def stats_path(self) -> str:
        """The file of the statistics, for messages."""
        is_v21 = parse_version(self.codebase_version) == (2, 1)
        return config.V2_STATS_PATH if is_v21 else config.STATS_PATH

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


def _with_v2_defaults(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a v2.x info.json with its usual paths, and 30.0 as 30."""
    whole = {
        name: int(value)
        for name in _V2_NUMBERS
        if isinstance(value := values.get(name), float) and value.is_integer()
    }
    return _V2_PATHS | dict(values) | whole


def _fill_path(template: str, chunk: int, file: int, camera: str = "") -> str:
    """Return the path of a file; in v2.x, `file` is the episode and `chunk` its chunk. Pure."""
    v2_numbers = {"episode_chunk": chunk, "episode_index": file}
    return template.format(video_key=camera, chunk_index=chunk, file_index=file, **v2_numbers)


def _check_fields(template: str, *, needed: str | None) -> None:
    """Raise ValueError for fields that are more than a number, or if the needed one is missing."""
    names = set()
    for _, field_name, form, conversion in string.Formatter().parse(template):
        is_plain = field_name is None or field_name.isidentifier()
        if not is_plain or conversion or not re.fullmatch(r"(0?\d{1,2})?d?", form or ""):
            raise ValueError(f"a field {field_name!r} that is no plain number")
        names.add(field_name)
    if needed is not None and needed not in names:
        raise ValueError(f"without {{{needed}}}, all of them are the same file")


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
