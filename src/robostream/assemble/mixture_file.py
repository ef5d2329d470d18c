# SPDX-License-Identifier: Apache-2.0
"""Mixtures described in YAML."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from robostream.assemble.source import Source
from robostream.errors import SelectionError

# The arguments of `MixtureDataset` that a file can hold, beside its sources.
MIXTURE_KEYS = (
    "weights",
    "epoch",
    "schema",
    "delta_timestamps",
    "delta_indices",
    "resample",
    "normalize",
    "tolerance_s",
    "clip_windows",
    "return_uint8",
    "depth_output_unit",
    "seed",
    "shuffle",
    "episode_pool_size",
    "lanes",
    "on_bad_episode",
    "frame_cache_bytes",
    "frame_cache_dir",
    "cache_dir",
    "cache_limit",
    "video_decode_device",
)
_FUNCTIONS = ("episode_filter", "transform", "image_transforms")
SOURCE_KEYS = tuple(f.name for f in dataclasses.fields(Source) if f.name not in _FUNCTIONS)


def read_mixture_file(path: str | Path) -> dict[str, Any]:
    """Return the arguments of `MixtureDataset` that a YAML file describes, or raise SelectionError.

    A relative `root` of a source is relative to the file's folder.
    """
    path = Path(path)
    described = load_yaml(path)
    if not isinstance(described, Mapping) or not isinstance(described.get("sources"), list):
        raise SelectionError(
            f"{path}: want a list 'sources' of datasets, and arguments of MixtureDataset by name"
        )
    _check_keys(described, ("sources", *MIXTURE_KEYS), str(path))
    if not described["sources"]:
        raise SelectionError(f"{path}: 'sources' is empty; want at least one dataset")
    sources = [_source(entry, n, path) for n, entry in enumerate(described["sources"])]
    return {**described, "sources": sources}


def _source(entry: Any, number: int, path: Path) -> Source:
    fields = {"repo_id": entry} if isinstance(entry, str) else entry
    where = f"{path}, source {number}"
    if not isinstance(fields, Mapping) or "repo_id" not in fields:
        raise SelectionError(f"{where}: want a dataset's name, or fields with a 'repo_id'")
    _check_keys(fields, SOURCE_KEYS, where)
    root = fields.get("root")
    if isinstance(root, str) and "://" not in root:
        fields = {**fields, "root": str(path.parent / Path(root).expanduser())}
    try:
        return Source(**fields)
    except SelectionError as error:
        raise SelectionError(f"{where}: {error}") from error


def load_yaml(path: Path) -> Any:
    """Return the content of a YAML or JSON file, or raise SelectionError."""
    import yaml  # type: ignore[import-untyped]  # comes with huggingface_hub; workers need none

    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SelectionError(f"{path}: cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise SelectionError(f"{path}: cannot be read as YAML: {error}") from error


def _check_keys(given: Mapping[Any, Any], known: Sequence[str], where: str) -> None:
    for key in given:
        if key not in known:
            near = difflib.get_close_matches(str(key), known, 1, cutoff=0.7)
            hint = f"Did you mean {near[0]!r}?" if near else f"Known are {', '.join(known)}."
            hint = "Give functions in Python." if key in _FUNCTIONS else hint
            raise SelectionError(f"{where}: unknown key {key!r}. {hint}")
