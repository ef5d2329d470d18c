# SPDX-License-Identifier: Apache-2.0
"""A mixture in YAML: the arguments of MixtureDataset, checked, with suggestions."""

from __future__ import annotations

from pathlib import Path

import pytest

from robostream.assemble import Source, read_mixture_file
from robostream.assemble.source import MIXTURE_KEYS
from robostream.errors import SelectionError

WHOLE = """
sources:
  - org/plain
  - repo_id: org/b
    root: data/b
    weight: 2.5
    group: franka
    episodes: [0, 3]
    frames: {0: [[5, 20], [30, 40]]}
    episode_weights: {3: 0.5}
    stride: 5
    camera_keys: [observation.images.top]
    feature_map:
      state: observation.state
      act: [action, [x, y, gripper]]
  - repo_id: org/c
    root: hf://datasets/org/c
epoch: 1000
schema:
  cameras: {observation.images.top: [224, 224]}
delta_timestamps: {action: [0, 0.1]}
seed: 7
"""


def test_a_file_holds_all_arguments_but_functions(tmp_path: Path) -> None:
    """A relative root is relative to the file; URLs stay as they are."""
    path = tmp_path / "mix.yaml"
    path.write_text(WHOLE)
    read = read_mixture_file(path)

    assert read.pop("sources") == [
        Source("org/plain"),
        Source(
            "org/b",
            root=str(tmp_path / "data/b"),
            weight=2.5,
            group="franka",
            episodes=(0, 3),
            frames={0: ((5, 20), (30, 40))},
            episode_weights={3: 0.5},
            stride=5,
            camera_keys=("observation.images.top",),
            feature_map={"state": "observation.state", "act": ("action", ("x", "y", "gripper"))},
        ),
        Source("org/c", root="hf://datasets/org/c"),
    ]
    assert read == {
        "epoch": 1000,
        "schema": {"cameras": {"observation.images.top": [224, 224]}},
        "delta_timestamps": {"action": [0, 0.1]},
        "seed": 7,
    }
    assert {*read} <= {*MIXTURE_KEYS}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("sources: [", "cannot be read as YAML"),
        ("- org/a", "want a list 'sources'"),
        ("sources: org/a", "want a list 'sources'"),
        ("sources: []", "'sources' is empty"),
        ("sources: [org/a]\nsede: 3", "unknown key 'sede'. Did you mean 'seed'?"),
        ("sources: [{repo_id: a, wieght: 3}]", "source 0: unknown key 'wieght'. Did you mean"),
        (
            "sources: [a, {weight: 3}]",
            "source 1: want a dataset's name, or fields with a 'repo_id'",
        ),
        ("sources: [{repo_id: a, weight: -3}]", "source 0: weight of source 'a' must be a number"),
        (
            "sources: [{repo_id: a, transform: f}]",
            "unknown key 'transform'. Give functions in Python",
        ),
        ("sources: [{repo_id: a, zzzz: f}]", "Known are repo_id, root"),
        ("sources: [a]\nimage_transforms: f", "Give functions in Python"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, says: str) -> None:
    """The error names the file, the source and the key, and suggests what was meant."""
    path = tmp_path / "mix.yaml"
    path.write_text(text)
    with pytest.raises(SelectionError) as error:
        read_mixture_file(path)

    assert says in str(error.value)
    assert str(path) in str(error.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """As for any other file."""
    with pytest.raises(SelectionError, match=r"none\.yaml: cannot be read"):
        read_mixture_file(tmp_path / "none.yaml")
