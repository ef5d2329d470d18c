# SPDX-License-Identifier: Apache-2.0
"""Lists of other projects become mixtures; their weights become shares of samples."""

from __future__ import annotations

from pathlib import Path

import pytest

from robostream.cli.mix import ListedDataset, convert_weights, read_list
from robostream.errors import SelectionError

REGISTRY = """
from typing import Dict

def entries(tasks): return [(task, 1.0, "arm") for task in tasks]

RATIOS = [0.5, 0.5]
MIXTURES: Dict[str, list] = {
    "kitchen": [
        ("pour", 1.0, "franka"),
        ("wipe", 2, "aloha", {"version": "2.0"}),
    ],
    "single": [("pour", 1.0)],
    "computed": entries(["a"]),
}
raise RuntimeError("never executed")
"""
GROOT = """
data:
  shuffle: true
  datasets:
    - dataset_paths: [one, two]
      mix_ratio: 3.0
      embodiment_tag: gr1
    - dataset_paths: [three]
      embodiment_tag: franka
"""


def test_a_python_registry_is_read_without_running_it(tmp_path: Path) -> None:
    """Literal lists are found by name; those that the file computes are not."""
    path = tmp_path / "mixtures.py"
    path.write_text(REGISTRY)

    assert read_list(path, "kitchen") == [
        ListedDataset("pour", 1.0, "franka", 0),
        ListedDataset("wipe", 2.0, "aloha", 1),
    ]
    assert read_list(path, "single") == [ListedDataset("pour", 1.0, None, 0)]
    with pytest.raises(SelectionError, match=r"has several lists; name one: kitchen, single"):
        read_list(path, None)
    with pytest.raises(SelectionError, match=r"has no list 'computed'; it has kitchen, single"):
        read_list(path, "computed")


def test_a_configuration_in_yaml_is_read(tmp_path: Path) -> None:
    """Folders of one entry share its weight by their frames; a weight that is missing is 1."""
    path = tmp_path / "config.yaml"
    path.write_text(GROOT)
    listed = read_list(path, None)

    assert [(one.dataset, one.weight, one.robot, one.entry) for one in listed] == [
        ("one", 3.0, "gr1", 0),
        ("two", 3.0, "gr1", 0),
        ("three", 1.0, "franka", 1),
    ]
    assert convert_weights(listed, [100, 200, 50], times_frames=False) == [0.25, 0.5, 0.25]


def test_weights_that_multiply_sizes_become_shares() -> None:
    """A weight of 2 for a dataset of 100 frames is as much as 1 for one of 200."""
    listed = [ListedDataset("a", 2.0, None, 0), ListedDataset("b", 1.0, None, 1)]

    assert convert_weights(listed, [100, 200], times_frames=True) == [0.5, 0.5]
    assert convert_weights(listed, [100, 200], times_frames=False) == [2 / 3, 1 / 3]


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.py", "X = [", "cannot be read as Python"),
        ("a.py", "X = make()", "found no list of"),
        ("a.yaml", "[", "cannot be read as YAML"),
        ("a.yaml", "- a\n- b\n", "found no list of"),
        ("a.json", '[["a", -1, "arm"]]', "want \\(dataset, weight above 0, robot\\)"),
        ("a.json", '[{"dataset": 3}]', "want \\(dataset, weight above 0, robot\\)"),
        ("a.json", '[{"dataset": "a", "weight": "much"}]', "got {'dataset': 'a'"),
    ],
)
def test_what_is_no_list_is_refused(tmp_path: Path, name: str, text: str, says: str) -> None:
    """The error names the file and what it wants."""
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(SelectionError, match=says) as error:
        read_list(path, None)

    assert str(path) in str(error.value)
