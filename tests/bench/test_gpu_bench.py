# SPDX-License-Identifier: Apache-2.0
"""`bench gpu` measures what it says, with the CPU in the place of a GPU; its tables in the docs."""

from __future__ import annotations

import dataclasses
import itertools
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from robostream.bench.gpu import one_run, publish
from robostream.bench.gpu.cases import RGB, YUV, Case, nvdec_cases, upload_cases
from robostream.bench.gpu.measure import PARTS
from robostream.bench.gpu.tables import DOCS, RESULTS, name_case, with_tables
from robostream.cli.main import build_parser
from tests.fixture_datasets import FIXTURES

REPO = Path(__file__).parents[2]


@pytest.mark.parametrize("window_s", [(0.0,), (-0.1, 0.0)], ids=["single", "sarm"])
@pytest.mark.parametrize("way", [RGB, YUV])
def test_images_are_counted_from_the_first_batch_on(
    way: str, window_s: tuple[float, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batches after it, of 4 samples and the last of each epoch of 2, one in each 0.1 s."""
    monkeypatch.setattr(one_run, "_GPU", "cpu")
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    ticks = itertools.count()
    monkeypatch.setattr(one_run, "time", SimpleNamespace(perf_counter=lambda: next(ticks) / 10))
    case = Case(way, "av1", 2, (64, 96), window_s)
    request = {"root": str(FIXTURES / "av1_multifile"), "seconds": 2.05}
    request |= {"batch_size": 4, "frame_cache_bytes": "auto"}
    figures = one_run.run_loader(dataclasses.asdict(case) | request)
    images = (20 * 4 + 2) * 2 * len(window_s)

    assert figures["images_per_s"] == pytest.approx(images / 2.2)
    assert figures["samples_per_s"] == pytest.approx((20 * 4 + 2) / 2.2)
    assert figures["rates"] == [round((19 * 4 + 2) * 2 * len(window_s) / 2)]
    assert figures["first_batch_s"] == pytest.approx(0.1)


def test_the_docs_say_what_the_json_says() -> None:
    """To the last digit, and each row is a case of the benchmark."""
    figures = json.loads((REPO / RESULTS).read_text())
    text = (REPO / DOCS).read_text()
    workers = sorted({row["workers"] for row in figures["uploads"]})
    cases = [*upload_cases(workers), *nvdec_cases("h264"), *nvdec_cases("hevc")]
    rows = [*figures["uploads"], *figures["nvdec"]]

    assert with_tables(text, figures) == text
    assert set(map(name_case, rows)) <= {name_case(dataclasses.asdict(case)) for case in cases}


def test_new_figures_replace_those_of_the_same_case(tmp_path: Path) -> None:
    """And leave the rest of the figures, and of the text, as it is."""
    for path in (DOCS, RESULTS):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text((REPO / path).read_text())
    before = json.loads((REPO / RESULTS).read_text())
    # As measured: with tuples, where JSON has lists.
    case = next(case for case in nvdec_cases("h264") if not case.streams)
    measured = dataclasses.asdict(case) | {"images_per_s": 123456.0, "decoders_in_use": None}
    publish(tmp_path, {"nvdec": [measured]})
    after = json.loads((tmp_path / RESULTS).read_text())
    lines = [(root / DOCS).read_text().splitlines() for root in (REPO, tmp_path)]

    assert sum(a != b for a, b in zip(*lines, strict=True)) == 1
    assert "\n".join(lines[1]).count("123,456") == 1
    assert len(after["nvdec"]) == len(before["nvdec"])
    assert {**after, "nvdec": []} == {**before, "nvdec": []}


def test_the_command_names_the_parts_that_there_are() -> None:
    """It does so without importing torch."""
    command = ["bench", "gpu"]

    assert build_parser(command).parse_args(command).parts == PARTS
