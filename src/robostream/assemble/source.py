# SPDX-License-Identifier: Apache-2.0
"""`Source`: one dataset of a mixture, what to read of it and how often; mixtures in YAML."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from robostream import arguments
from robostream.assemble.opened import DatasetLocation
from robostream.assemble.selection import (
    EpisodeFilter,
    EpisodeWeights,
    FrameRanges,
    check_frames,
    check_weights,
    finite_number,
)
from robostream.assemble.spec import ImageTransforms
from robostream.errors import SelectionError
from robostream.meta import DEFAULT_FEATURES
from robostream.storage import CacheSettings

FeatureMap = Mapping[str, str | tuple[str, Sequence[str]]]
"""A common key for an own key, alone or with new names of the feature's dimensions."""

# The arguments of `MixtureDataset` that a file can hold, beside its sources.
MIXTURE_KEYS = (
    *("weights", "epoch", "schema", "delta_timestamps", "delta_indices", "resample", "normalize"),
    *("tolerance_s", "clip_windows", "return_uint8", "depth_output_unit"),
    *("seed", "shuffle", "episode_pool_size", "lanes", "on_bad_episode"),
    *("frame_cache_bytes", "frame_cache_dir", "cache_dir", "cache_limit", "video_decode_device"),
)
_FUNCTIONS = ("episode_filter", "transform", "image_transforms")


@dataclass(frozen=True)
class Source:
    """One dataset of a `MixtureDataset`.

    Attributes:
        repo_id: The dataset's name, folder or URL, as for `StreamingLeRobotDataset`.
        root: Its folder or URL.
        revision: Branch, tag or commit on the Hub.
        data_files_root: The folder of data/ and videos/, if it is not the root.
        token: Hub token.
        storage_options: Options of the store of a URL.
        episodes: The episodes to read; None for all.
        episode_filter: Takes a row of the episode table, returns whether to read that episode.
        camera_keys: The cameras to read, by their own keys; None for all.
        frames: The frames to deliver: (first, stop) pairs by episode, or a function of a row of the
            episode table that returns such pairs. An episode without an entry keeps all frames.
        stride: Deliver every stride-th of these frames. Windows keep the dataset's own spacing.
        episode_weights: How often to deliver an episode: weights by episode, or a function of a row
            of the episode table. An episode without an entry has weight 1, and 0 leaves it out.
        weight: The dataset's share of samples, relative to the other sources' weights.
        group: The robot or embodiment whose statistics it shares; by default the robot_type of
            info.json, or else the dataset's name.
        feature_map: The common key of an own key, or the pair (common key, names of dimensions).
        transform: The image transform of this source, instead of the mixture's.
    """

    repo_id: str
    root: str | Path | None = None
    revision: str | None = None
    data_files_root: str | Path | None = None
    token: str | None = field(default=None, repr=False)
    storage_options: dict[str, Any] | None = field(default=None, repr=False)
    episodes: Sequence[int] | None = None
    episode_filter: EpisodeFilter | None = None
    camera_keys: Sequence[str] | None = None
    frames: FrameRanges | None = None
    stride: int = 1
    episode_weights: EpisodeWeights | None = None
    weight: float | None = None
    group: str | None = None
    feature_map: FeatureMap = field(default_factory=dict)
    transform: ImageTransforms | None = None

    def __post_init__(self) -> None:
        name = arguments.dataset_name(self.repo_id)
        self.location(None)  # checks what it is made of

        def of(argument: str) -> str:
            return f"{argument} of source {name!r}"

        for argument in ("episode_filter", "transform"):
            value = getattr(self, argument)
            arguments.of_kind(value, of(argument), Callable | None, "callable or None")
        arguments.of_kind(self.group, of("group"), str | None, "a text, the name of a robot")
        checked: dict[str, Any] = {
            "stride": arguments.whole_number(self.stride, of("stride"), 1),
            "frames": check_frames(self.frames, of("frames")),
            "episode_weights": check_weights(self.episode_weights, of("episode_weights")),
            "feature_map": _check_feature_map(self.feature_map, of("feature_map")),
        }
        if self.weight is not None:
            checked["weight"] = finite_number(self.weight, of("weight"), or_zero=False)
        if self.episodes is not None:
            checked["episodes"] = tuple(arguments.whole_numbers(self.episodes, of("episodes")))
        if self.camera_keys is not None:
            checked["camera_keys"] = tuple(arguments.names(self.camera_keys, of("camera_keys")))
        for argument, value in checked.items():
            object.__setattr__(self, argument, value)

    def location(self, cache: CacheSettings | None) -> DatasetLocation:
        """Return where the dataset lies, for `open_dataset`."""
        place = self.repo_id, self.root, self.revision, self.data_files_root
        return DatasetLocation(*place, False, self.token, self.storage_options, cache)


def _check_feature_map(given: object, name: str) -> FeatureMap:
    wanted = 'common keys by own key, {"state": "observation.state"} (a dict)'
    checked: dict[str, str | tuple[str, Sequence[str]]] = {}
    for own, target in arguments.of_kind(given, name, Mapping, wanted).items():
        is_pair = isinstance(target, list | tuple) and len(target) == 2
        common, names = target if is_pair else (target, None)
        if not isinstance(own, str) or not isinstance(common, str):
            raise SelectionError(
                f"{name} must map an own key to a common key, or to (common key, names); got "
                f"{own!r}: {target!r:.200}"
            )
        defaults = [key for key in (own, common) if key in DEFAULT_FEATURES and own != common]
        if defaults:
            raise SelectionError(f"{name} cannot rename {defaults[0]!r}, which every dataset has")
        checked[own] = (
            (common, tuple(arguments.names(names, f"{name}, names of {own!r},")))
            if is_pair
            else common
        )
    commons = [target if isinstance(target, str) else target[0] for target in checked.values()]
    twice = sorted({common for common in commons if commons.count(common) > 1})
    if twice:
        raise SelectionError(f"{name} maps several features to {twice[0]!r}; want one for each key")
    return checked


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
