# SPDX-License-Identifier: Apache-2.0
"""Lists of datasets, weights and robots as other projects write them, converted to a mixture."""

from __future__ import annotations

import ast
import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]  # comes with huggingface_hub

from robostream import arguments
from robostream.assemble import load_yaml
from robostream.errors import SelectionError

# The names of the same things in lists of other projects.
_OTHER_NAMES = (
    ("dataset", "dataset_path", "dataset_paths", "path", "repo_id", "name"),
    ("weight", "mix_ratio", "ratio", "sampling_weight"),
    ("robot", "robot_type", "embodiment_tag", "embodiment", "group"),
)


@dataclass(frozen=True, slots=True)
class ListedDataset:
    """A dataset of another project's list."""

    dataset: str  # its folder or name
    weight: float  # the weight of its entry
    robot: str | None  # its robot or embodiment; None if the list names none
    entry: int  # the number of its entry. Datasets of one entry share its weight by their sizes


def read_list(path: str | Path, name: str | None) -> list[ListedDataset]:
    """Return the datasets of a list as GR00T and StarVLA write them, or raise SelectionError.

    The file is YAML, JSON, or Python with literal lists; Python is not executed. An entry is
    (dataset, weight, robot), or an object with these fields. `name` chooses one of several lists.
    """
    path = Path(path)
    lists = dict(_python_lists(path) if path.suffix == ".py" else _lists("", load_yaml(path)))
    if not lists:
        raise SelectionError(
            f"{path}: found no list of (dataset, weight, robot). In Python it must be literal: "
            "without calls, comprehensions or other names."
        )
    if name is None and len(lists) > 1:
        raise SelectionError(f"{path} has several lists; name one: {', '.join(lists)}")
    if name is not None and name not in lists:
        raise SelectionError(f"{path} has no list {name!r}; it has {', '.join(lists)}")
    chosen = lists[name] if name is not None else next(iter(lists.values()))
    return [one for number, entry in enumerate(chosen) for one in _listed(entry, number, path)]


def convert_weights(
    listed: Sequence[ListedDataset], frames: Sequence[int], *, times_frames: bool
) -> list[float]:
    """Return each dataset's share of samples. Pure.

    With `times_frames`, weights multiply sizes. Else an entry's datasets share its weight by size.
    """
    totals: dict[int, int] = {}
    for one, count in zip(listed, frames, strict=True):
        totals[one.entry] = totals.get(one.entry, 0) + count
    pairs = zip(listed, frames, strict=True)
    parts = dict.fromkeys(totals, 1) if times_frames else totals
    weights = [one.weight * count / parts[one.entry] for one, count in pairs]
    return [weight / sum(weights) for weight in weights]


def format_mixture(sources: Sequence[dict[str, Any]]) -> str:
    """Return sources as the YAML of a mixture. Pure."""
    return str(yaml.safe_dump({"sources": sources}, sort_keys=False, width=1000))


def _listed(entry: Any, number: int, path: Path) -> Iterator[ListedDataset]:
    if isinstance(entry, Mapping):
        datasets, weight, robot = (
            next((entry[key] for key in keys if key in entry), None) for keys in _OTHER_NAMES
        )
    else:
        datasets, weight, robot = [*entry, None, None][:3]
    folders = [datasets] if isinstance(datasets, str) else datasets
    weight = 1 if weight is None else weight
    if not isinstance(folders, list) or not all(isinstance(folder, str) for folder in folders):
        folders = []
    if not folders or not arguments.is_number(weight) or not 0 < weight < math.inf:
        raise SelectionError(f"{path}: want (dataset, weight above 0, robot), got {entry!r:.200}")
    for folder in folders:
        yield ListedDataset(folder, float(weight), None if robot is None else str(robot), number)


def _lists(key: str, value: Any) -> Iterator[tuple[str, Sequence[Any]]]:
    """Yield the lists of datasets found in `value`, by the keys that lead to them."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _lists(str(name), inner)
    elif isinstance(value, list | tuple) and value and all(map(_is_entry, value)):
        yield key, value


def _is_entry(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(name in value for name in _OTHER_NAMES[0])
    is_list = isinstance(value, list | tuple) and len(value) >= 2
    return is_list and isinstance(value[0], str) and arguments.is_number(value[1])


def _python_lists(path: Path) -> Iterator[tuple[str, Sequence[Any]]]:
    """Yield the literal lists of a Python file, by variable or key; skip those it computes."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError) as error:
        raise SelectionError(f"{path}: cannot be read as Python: {error}") from error
    for node in ast.walk(tree):
        pairs: list[tuple[Any, Any]] = []
        if isinstance(node, ast.Dict):
            pairs = [*zip(node.keys, node.values, strict=True)]
        elif isinstance(node, ast.Assign):
            pairs = [(node.targets[0], node.value)]
        elif isinstance(node, ast.AnnAssign):
            pairs = [(node.target, node.value)]
        for key, value in pairs:
            if isinstance(value, ast.List | ast.Tuple):
                with contextlib.suppress(ValueError, TypeError):
                    name = getattr(key, "value", getattr(key, "id", ""))
                    yield from _lists(str(name), ast.literal_eval(value))
