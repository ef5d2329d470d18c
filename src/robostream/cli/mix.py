# SPDX-License-Identifier: Apache-2.0
"""Mixtures of datasets: `robostream mix`. Plan one, its statistics, another project's list."""

from __future__ import annotations

import argparse
import ast
import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml  # type: ignore[import-untyped]  # comes with huggingface_hub

from robostream import arguments, tools
from robostream.assemble import load_yaml
from robostream.byte_sizes import format_bytes
from robostream.cli import arguments as cli
from robostream.cli.contents import stats_table
from robostream.errors import SelectionError
from robostream.meta import LeRobotDatasetMetadata, as_lists
from robostream.plan import Cut

if TYPE_CHECKING:
    from robostream.loader import MixtureDataset

EXAMPLES = """\
  robostream mix plan mix.yaml --batch-size 64 --world-size 8
  robostream mix stats mix.yaml
  robostream mix import mixtures.py --list kitchen --root ./datasets > mix.yaml
  robostream mix import groot.yaml --times-frames
"""
_ACTIONS = {
    "plan": "show a mixture's shares, memory and shuffle; reads only metadata",
    "stats": "recompute the statistics of each group from the rows of its datasets, exactly",
    "import": "convert another project's list of datasets, weights and robots to a mixture",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `robostream mix`."""
    actions = cli.add_actions(parser, _ACTIONS)
    planner, statistics, importer = actions["plan"], actions["stats"], actions["import"]
    planner.add_argument("file", metavar="FILE", help="the mixture, in YAML")
    cli.add_option(planner, "--batch-size", cli.positive, 64, "samples per rank and step")
    cli.add_option(planner, "--world-size", cli.positive, 1, "number of ranks")
    cli.add_json(planner, "all figures")
    statistics.add_argument("file", metavar="FILE", help="the mixture, in YAML")
    cli.add_json(statistics, "the statistics by group")
    importer.add_argument("file", metavar="LIST", type=Path, help="YAML, JSON or Python file")
    importer.add_argument("--list", dest="name", help="the name of the list, if there are several")
    importer.add_argument("--root", type=Path, help="the folder that holds the datasets")
    times_help = "weights multiply the datasets' frames, as with balance_dataset_weights in GR00T"
    cli.add_flag(importer, "--times-frames", times_help)


def run(args: argparse.Namespace) -> int:
    """Run the action."""
    actions = {"plan": _plan_mixture, "stats": _mixture_stats, "import": _import_mixture}
    return actions[args.action](args)


def _open_mixture(file: str, world_size: int) -> MixtureDataset:
    from robostream.loader import MixtureDataset  # imports torch, which plans do not need

    return MixtureDataset.from_file(file, rank=0, world_size=world_size)


def _plan_mixture(args: argparse.Namespace) -> int:
    mixture = _open_mixture(args.file, args.world_size)
    shares, metas = mixture.shares, mixture.metas
    episode_bytes = sum(
        share.share * tools.row_bytes(meta) * meta.total_frames / meta.total_episodes
        for share, meta in zip(shares, metas, strict=True)
    )
    figures = tools.measure_mixture(
        mixture.plan(0),
        Cut(0, args.world_size, args.batch_size, drop_last=False),
        tools.list_mixture_cameras(mixture.schema, mixture.maps, metas),
        episode_bytes,
    )
    rows = [
        (s.name, s.group, f"{s.frames:,}", f"{s.samples:,}", f"{s.share:.2%}", f"{s.laps:.2f}")
        for s in shares
    ]
    distinct = figures.distinct / figures.uniform
    needs = [
        ("samples per epoch", f"{figures.samples:,}"),
        ("steps per epoch", f"{figures.steps:,}"),
        ("lanes", f"{figures.lanes}"),
        ("episodes per global batch", f"{figures.distinct:.1f} ({distinct:.0%} of uniform)"),
        ("variation of shares, global batch", f"{figures.variation:.2f} of independent draws"),
        ("variation of shares, rank's batch", f"{figures.rank_variation:.2f}"),
        ("open episodes per rank", f"at most {figures.open_episodes}"),
        ("RAM per rank to decode once", format_bytes(figures.frame_cache_bytes)),
        ("RAM per rank for rows", format_bytes(figures.row_cache_bytes)),
    ]
    header = ("dataset", "group", "frames", "samples", "share", "laps")
    tables = cli.terminal_table(header, rows), cli.terminal_table(("what", "how much"), needs)
    parts = [tables[0], mixture.schema.describe(), tables[1]]
    cli.print_result(args, {"sources": shares, "epoch": figures}, "\n\n".join(parts))
    return 0


def _mixture_stats(args: argparse.Namespace) -> int:
    mixture = _open_mixture(args.file, 1)
    groups, features = mixture.exact_stats(), mixture.schema.features
    tables = [f"{group}\n{stats_table(stats, features)}" for group, stats in groups.items()]
    found = {g: {key: as_lists(e) for key, e in stats.items()} for g, stats in groups.items()}
    cli.print_result(args, found, "\n\n".join(tables))
    return 0


def _import_mixture(args: argparse.Namespace) -> int:
    listed = read_list(args.file, args.name)
    roots = [None if args.root is None else args.root / one.dataset for one in listed]
    frames = [1] * len(listed)
    if args.times_frames or len({one.entry for one in listed}) < len(listed):
        pairs = zip(listed, roots, strict=True)
        frames = [LeRobotDatasetMetadata(one.dataset, root).total_frames for one, root in pairs]
    shares = convert_weights(listed, frames, times_frames=args.times_frames)
    print(f"# {args.file.name}{f', {args.name}' if args.name else ''}: share of samples")
    sources = []
    for one, root, share in zip(listed, roots, shares, strict=True):
        print(f"# {share:7.2%}  {one.dataset}")
        place = {} if root is None else {"root": str(root.absolute())}
        group = {} if one.robot is None else {"group": one.robot}
        sources.append({"repo_id": one.dataset, **place, "weight": round(share, 12), **group})
    print(yaml.safe_dump({"sources": sources}, sort_keys=False, width=1000), end="")
    return 0


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
