# SPDX-License-Identifier: Apache-2.0
"""`robostream mix`: another project's list becomes a mixture."""

from __future__ import annotations

import dataclasses
import inspect
import json
from pathlib import Path

import pytest

from robostream import MixtureDataset
from robostream.assemble import read_mixture_file
from robostream.assemble.source import MIXTURE_KEYS
from robostream.cli.main import main
from robostream.meta import LeRobotDatasetMetadata
from tests.fixture_datasets import FIXTURES

NAMES = ["images", "h264_bframes"]


def frames_of(name: str) -> int:
    return LeRobotDatasetMetadata(name, root=FIXTURES / name).total_frames


@pytest.fixture
def listing(tmp_path: Path) -> Path:
    """A list with weights 1 and 3."""
    path = tmp_path / "list.json"
    path.write_text(json.dumps([[NAMES[0], 1, "arm"], [NAMES[1], 3, "hand"]]))
    return path


def test_an_imported_list_can_be_read(
    listing: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It has the list's shares; they are printed in comments."""
    code = main(["mix", "import", str(listing), "--root", str(FIXTURES)])
    printed = capsys.readouterr().out
    (tmp_path / "mix.yaml").write_text(printed)
    sources = read_mixture_file(tmp_path / "mix.yaml")["sources"]

    assert code == 0
    assert "#  25.00%  images\n#  75.00%  h264_bframes\n" in printed
    assert [(s.repo_id, s.root, s.weight, s.group) for s in sources] == [
        (NAMES[0], str(FIXTURES / NAMES[0]), 0.25, "arm"),
        (NAMES[1], str(FIXTURES / NAMES[1]), 0.75, "hand"),
    ]


def test_what_is_printed_can_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Names with signs of YAML survive."""
    (tmp_path / "list.json").write_text(json.dumps([["yes: no #1", 1, "on"], ["b", 3]]))
    main(["mix", "import", str(tmp_path / "list.json")])
    (tmp_path / "mix.yaml").write_text(capsys.readouterr().out)
    sources = read_mixture_file(tmp_path / "mix.yaml")["sources"]

    assert [(s.repo_id, s.weight, s.group) for s in sources] == [
        ("yes: no #1", 0.25, "on"),
        ("b", 0.75, None),
    ]


def test_weights_that_multiply_frames_are_converted(
    listing: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The share is weight times frames, over the sum."""
    main(["mix", "import", str(listing), "--root", str(FIXTURES), "--times-frames"])
    (tmp_path / "mix.yaml").write_text(capsys.readouterr().out)
    sources = read_mixture_file(tmp_path / "mix.yaml")["sources"]
    first, second = frames_of(NAMES[0]), 3 * frames_of(NAMES[1])

    assert sources[0].weight == pytest.approx(first / (first + second))
    assert sources[1].weight == pytest.approx(second / (first + second))


def test_a_list_that_is_none_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command ends with 1 and says what it wants."""
    (tmp_path / "none.json").write_text("{}")

    assert main(["mix", "import", str(tmp_path / "none.json")]) == 1
    assert "found no list of (dataset, weight, robot)" in capsys.readouterr().err


@pytest.fixture
def described(tmp_path: Path) -> Path:
    """A mixture of two datasets, one of which is repeated often."""
    sources = [
        {"repo_id": name, "root": str(FIXTURES / name), "weight": weight}
        for name, weight in (("av1_multifile", 30), ("h264_bframes", 1))
    ]
    path = tmp_path / "mix.yaml"
    path.write_text(json.dumps({"sources": sources, "seed": 3}))  # JSON is YAML
    return path


def test_the_plan_of_a_mixture_shows_shares_schema_and_needs(
    described: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """The text has a line per dataset, feature and figure; many laps are a warning."""
    code = main(["mix", "plan", str(described), "--batch-size", "4", "--world-size", "2"])
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]

    assert code == 0
    assert ["av1_multifile", "arm", "62", "1,620", "96.77%", "26.13"] in lines
    assert ["h264_bframes", "arm", "54", "54", "3.23%", "1.00"] in lines
    assert ["samples", "per", "epoch", "1,674"] in lines
    assert ["steps", "per", "epoch", "210"] in lines
    assert ["observation.images.top", "3", "x", "48", "x", "64", "image"] in lines
    assert "av1_multifile: 62 frames, 96.77 % of samples, 26.1 laps an epoch" in caplog.text


def test_the_plan_as_json_has_all_figures(
    described: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It has the shares that the mixture itself has, and sensible figures of its epoch."""
    main(["mix", "plan", str(described), "--json"])
    found = json.loads(capsys.readouterr().out)
    mixture = MixtureDataset.from_file(described, rank=0, world_size=1)
    epoch = found["epoch"]

    assert found["sources"] == [dataclasses.asdict(share) for share in mixture.shares]
    assert epoch["samples"] == mixture.num_frames == 1674
    assert 0 < epoch["distinct"] <= mixture.plan(0).num_episodes
    assert 0 < epoch["variation"] < 1.5
    assert epoch["frame_cache_bytes"] > 2 * 48 * 64  # two cameras
    assert epoch["row_cache_bytes"] > 0


def test_a_mixture_that_does_not_fit_together_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command ends with 1 and shows the error with its cure."""
    names = ("images", "h264_bframes")
    roots = [{"repo_id": name, "root": str(FIXTURES / name)} for name in names]
    (tmp_path / "mix.yaml").write_text(
        json.dumps({"sources": roots, "delta_timestamps": {"action": [1 / 30]}})
    )

    assert main(["mix", "plan", str(tmp_path / "mix.yaml")]) == 1
    assert "of 'images' within tolerance_s" in capsys.readouterr().err


def test_a_file_can_hold_every_argument_of_a_mixture() -> None:
    """All but functions, and what a launcher decides."""
    parameters = set(inspect.signature(MixtureDataset).parameters)

    assert parameters - {*MIXTURE_KEYS} == {"sources", "image_transforms", "rank", "world_size"}
    assert {*MIXTURE_KEYS} <= parameters


def test_exact_statistics_of_each_group(
    listing: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The table has the dimensions of each robot; JSON has what `exact_stats` returns."""
    monkeypatch.setenv("ROBOSTREAM_CACHE", str(tmp_path / "cache"))
    main(["mix", "import", str(listing), "--root", str(FIXTURES)])
    described = tmp_path / "mix.yaml"
    described.write_text(capsys.readouterr().out)
    codes = [main(["mix", "stats", str(described), *more]) for more in ([], ["--json"])]
    table, _, printed = capsys.readouterr().out.partition("\n{\n")
    found = json.loads("{" + printed)
    wanted = MixtureDataset.from_file(described, rank=0, world_size=1).exact_stats()

    assert codes == [0, 0]
    assert [line for line in table.splitlines() if line in wanted] == ["arm", "hand"]
    assert found.keys() == wanted.keys()
    for group, stats in wanted.items():
        for name, value in stats["action"].items():
            assert found[group]["action"][name] == value.tolist()
