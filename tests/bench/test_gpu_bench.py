# SPDX-License-Identifier: Apache-2.0
"""`bench gpu` measures what it says, with the CPU in the place of a GPU; its tables in the docs."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from robostream.bench.gpu import one_run, publish_gpu
from robostream.bench.gpu.cases import RGB, YUV, Case, nvdec_cases, upload_cases
from robostream.bench.gpu.tables import DOCS, RESULTS, with_tables
from tests.fixture_datasets import FIXTURES

REPO = Path(__file__).parents[2]


@pytest.mark.parametrize("window_s", [(0.0,), (-0.1, 0.0)], ids=["single", "sarm"])
@pytest.mark.parametrize("way", [RGB, YUV])
def test_batches_are_counted_from_the_first_on(
    way: str, window_s: tuple[float, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """For as long as it is told, over as many epochs as that takes."""
    monkeypatch.setattr(one_run, "_GPU", "cpu")
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    case = Case(way, "av1", 2, (64, 96), window_s)
    request = {"root": str(FIXTURES / "av1_multifile"), "seconds": 0.5}
    request |= {"batch_size": 4, "frame_cache_bytes": "auto"}
    figures = one_run.run_loader(dataclasses.asdict(case) | request)

    assert figures["samples_per_s"] * 2 * len(window_s) == pytest.approx(figures["images_per_s"])
    assert figures["rates"] == [pytest.approx(figures["images_per_s"], rel=0.5)]
    assert figures["first_batch_s"] > 0


def test_the_docs_say_what_the_json_says() -> None:
    """To the last digit, and each row is a case of the benchmark."""
    figures = json.loads((REPO / RESULTS).read_text())
    text = (REPO / DOCS).read_text()
    measured = {_name(row) for part in ("uploads", "nvdec") for row in figures[part]}
    cases = [*upload_cases([1, 4, 16]), *nvdec_cases("h264"), *nvdec_cases("hevc")]

    assert with_tables(text, figures) == text
    assert measured <= {_name(json.loads(json.dumps(dataclasses.asdict(case)))) for case in cases}


def test_new_figures_replace_those_of_the_same_case(tmp_path: Path) -> None:
    """And leave the rest of the figures, and of the text, as it is."""
    for path in (DOCS, RESULTS):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text((REPO / path).read_text())
    figures = json.loads((REPO / RESULTS).read_text())
    newer = figures["nvdec"][1] | {"images_per_s": 123456.0}
    publish_gpu(tmp_path, figures | {"uploads": [], "nvdec": [newer]})
    before, after = ((root / DOCS).read_text().splitlines() for root in (REPO, tmp_path))

    assert sum(a != b for a, b in zip(before, after, strict=True)) == 1
    assert "\n".join(after).count("123,456") == 1


def _name(row: dict[str, Any]) -> str:
    names = ("way", "codec", "gop", "size", "window_s", "workers", "resize", "streams")
    return json.dumps([row[name] for name in names])
