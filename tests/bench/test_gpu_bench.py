# SPDX-License-Identifier: Apache-2.0
"""Tests of `bench gpu`, with the CPU instead of a GPU, and of its tables in the docs."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from robostream.bench import gpu, measure
from robostream.bench.gpu import (
    KEYS,
    NVDEC,
    PARTS,
    PUBLICATION,
    RGB,
    YUV,
    case_fields,
    measure_loader,
    measure_ranks,
    nvdec_cases,
    upload_cases,
)
from robostream.bench.results import DOCS, RESULTS, row_key
from robostream.cli.main import build_parser
from tests.bench.runs import case_of
from tests.fixture_datasets import FIXTURES

REPO = Path(__file__).parents[2]
JSON = RESULTS / PUBLICATION.results


@pytest.mark.parametrize("window_s", [(0.0,), (-0.1, 0.0)], ids=["single", "sarm"])
@pytest.mark.parametrize("way", [RGB, YUV])
def test_images_are_counted_from_the_first_batch_on(
    way: str, window_s: tuple[float, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch arrives every 0.1 s; it has 4 samples, and 2 at the end of an epoch."""
    monkeypatch.setattr(gpu, "_GPU", "cpu")
    now_s = itertools.count(step=0.1)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    clock = SimpleNamespace(perf_counter=lambda: times[-1])
    times = [0.0]
    deliver = gpu._batches_on_gpu

    def deliver_slowly(*arguments: Any, **options: Any) -> Iterator[dict[str, Any]]:
        for batch in deliver(*arguments, **options):
            times.append(next(now_s))
            yield batch

    next(now_s)
    monkeypatch.setattr(gpu, "_batches_on_gpu", deliver_slowly)
    monkeypatch.setattr(measure, "time", clock)
    options = {"batch_size": 4, "workers": 1, "loader": way, "options": {"resize": None}}
    case = case_of(FIXTURES / "av1_multifile", window_s=window_s, **options)
    figures = measure_loader(case, seconds=2.05)
    # 62 frames: an epoch is 15 batches of 4 and one of 2.
    images = (20 * 4 + 2) * 2 * len(window_s)

    assert figures["images_per_s"] == pytest.approx(images / 2.1)
    assert figures["samples_per_s"] == pytest.approx((20 * 4 + 2) / 2.1)
    assert len(figures["rates"]) == 1
    assert figures["first_batch_s"] == pytest.approx(0.1)
    assert figures["decoders_in_use"] is None


def test_ranks_divide_the_workers_and_the_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of two ranks has a rate of its own; both run at the same time."""
    monkeypatch.setattr(gpu, "_GPU", "cpu")
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    seen: list[tuple[int | None, Any, Any]] = []
    both = threading.Barrier(2, timeout=60)

    def run_here(function: Any, **arguments: Any) -> Any:
        case = arguments["case"]
        seen.append((case.workers, case.options["rank"], case.options["world_size"]))
        both.wait()
        return function(**arguments)

    monkeypatch.setattr(gpu, "run_process", run_here)
    options = {"batch_size": 4, "workers": 2, "loader": YUV, "options": {"resize": None}}
    case = case_of(FIXTURES / "av1_multifile", **options)
    rates = measure_ranks(case, 2, seconds=0.3)

    assert sorted(seen) == [(1, 0, 2), (1, 1, 2)]
    assert min(rates) > 0


def test_every_part_has_rows_and_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row is measured as its case says; a row of 4:2:0 is beside that of RGB."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "some GPU")
    monkeypatch.setattr(gpu, "decode_floor", lambda *_, **__: 50.0)
    monkeypatch.setattr(gpu, "touch_memory", lambda _: 0.0)
    monkeypatch.setattr(measure.BenchData, "files", lambda _: [])

    def run_process(function: Any, *, case: measure.BenchCase, seconds: float) -> dict[str, Any]:
        rate = {"images_per_s": 100.0, "decoders_in_use": 0.5}
        if function is gpu.measure_streams:
            return {"by_streams": [{"streams": n} | rate for n in case.options["streams"]]}
        assert case.options["frame_cache_bytes"] == ("auto" if case.loader == NVDEC else "2GiB")
        return rate | {"decoded_per_delivered": 1.0}

    monkeypatch.setattr(gpu, "run_process", run_process)
    monkeypatch.setattr(gpu, "_RESIZED_FRAME_CACHE", "2GiB")
    figures, tables = gpu.run(quick=True, workers=[2])

    assert [len(figures[part]) for part in ("uploads", "ranks", "nvdec")] == [12, 4, 20]
    assert {row["over_floor"] for row in figures["uploads"]} == {2.0}
    assert {row["images_per_s"] for row in figures["ranks"]} == {100.0, 200.0}
    for title in ("4:2:0", "ranks on the GPU", "loader, 8"):
        assert title in tables


def test_each_row_of_the_docs_is_a_case_of_the_benchmark() -> None:
    """The committed rows are those that the benchmark would measure."""
    figures = json.loads((REPO / JSON).read_text())
    workers = sorted({row["workers"] for row in figures["uploads"]})
    cases = [*upload_cases(workers), *nvdec_cases("h264"), *nvdec_cases("hevc")]
    rows = [*figures["uploads"], *figures["nvdec"]]

    assert {row_key(row, KEYS) for row in rows} <= {row_key(case_fields(c), KEYS) for c in cases}


def test_new_figures_replace_those_of_the_same_case(tmp_path: Path) -> None:
    """All other figures and the text stay."""
    for path in (DOCS, JSON):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text((REPO / path).read_text())
    before = json.loads((REPO / JSON).read_text())
    # As measured: with tuples, where JSON has lists.
    case = next(case for case in nvdec_cases("h264") if not case.options["streams"])
    measured = case_fields(case) | {"images_per_s": 123456.0, "decoders_in_use": None}
    PUBLICATION.publish(tmp_path, {"nvdec": [measured]})
    after = json.loads((tmp_path / JSON).read_text())
    lines = [(root / DOCS).read_text().splitlines() for root in (REPO, tmp_path)]

    assert sum(a != b for a, b in zip(*lines, strict=True)) == 1
    assert "\n".join(lines[1]).count("123,456") == 1
    assert len(after["nvdec"]) == len(before["nvdec"])
    assert {**after, "nvdec": []} == {**before, "nvdec": []}


def test_the_command_names_the_parts_that_there_are() -> None:
    """The parser lists the parts without importing torch."""
    command = ["bench", "gpu"]

    assert build_parser(command).parse_args(command).parts == PARTS
