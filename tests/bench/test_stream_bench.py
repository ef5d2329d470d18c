# SPDX-License-Identifier: Apache-2.0
"""Tests of `bench stream`: its files, flags and failures."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from robostream.bench.stream import measure_stream, parse_settings, written_settings
from robostream.errors import SelectionError
from tests.fixture_datasets import FIXTURES

if TYPE_CHECKING:
    from tests.servers.hub import Hub

REPO = Path(__file__).parents[2]
SCRIPT = REPO / "benchmarks" / "streaming" / "benchmark_streaming.py"
ROOT = FIXTURES / "av1_multifile"
# What LeRobot's script writes, field by field.
REFERENCE_FIELDS = """
repo_id source mode batch_size num_workers prefetch_factor buffer_size episode_pool_size
episodes_per_batch_mean shuffle_randomness_frac num_cameras image_shape fps device
video_decode_device peak_rss_gb frames_measured first_batch_latency_s frames_per_s_node
samples_per_s p50_sample_latency_ms p95_sample_latency_ms p99_sample_latency_ms total_time_s
steady_time_s wallclock_s decode_s_total fetch_s_total decode_pct_worker_time
fetch_pct_worker_time video_decoder_cache
"""


def benchmark(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, **environment},
        check=False,
    )


def small_run(out: Path, *more: str) -> list[str]:
    """Return the flags of a short run in LeRobot's spelling."""
    flags = f"--repo_id some/name --root {ROOT} --source local --batch_size 8 --num_workers 2"
    flags += f" --num_batches 12 --warmup_batches 2 --floor_s 0.2 --device cpu --out_dir {out}"
    return [*flags.split(), *more]


def figures_in(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]


@pytest.mark.parametrize(
    ("mode", "images"), [("single", 2), pytest.param("sarm", 16, marks=pytest.mark.long)]
)
def test_a_run_keeps_every_figure_of_the_reference(tmp_path: Path, mode: str, images: int) -> None:
    """JSON and CSV have LeRobot's fields, with consistent rates and shares."""
    done = benchmark(*small_run(tmp_path, "--mode", mode))
    assert done.returncode == 0, done.stderr
    (figures,) = figures_in(tmp_path)
    (path,) = tmp_path.glob("*.csv")
    (row,) = csv.DictReader(path.read_text().splitlines())

    assert [name for name in REFERENCE_FIELDS.split() if name not in figures] == []
    assert re.fullmatch(rf"local_{mode}_bs8_w2_pf2_ep64_cpu_\d{{8}}-\d{{6}}\.csv", path.name)
    assert list(row) == list(figures)
    assert json.loads(row["video_decoder_cache"]) == figures["video_decoder_cache"]
    assert figures["frames_measured"] == 12 * 8
    assert figures["frames_per_s_node"] == figures["samples_per_s"]
    assert figures["images_per_s"] == pytest.approx(figures["samples_per_s"] * images)
    assert figures["floor_images_per_s"] > 0
    assert figures["traffic"]["requests"] == figures["traffic"]["bytes_fetched"] == 0
    assert 0 < figures["peak_pss_gb"] <= figures["peak_rss_gb"] + 1e-3
    assert 0 < figures["shuffle_randomness_frac"] < 1.5
    shares = [figures[f"{kind}_pct_worker_time"] for kind in ("fetch", "decode", "other")]
    assert all(0 <= share <= 100 for share in shares)
    assert set(figures["definitions"]) >= {"frames_per_s_node", "samples_per_s", "images_per_s"}


@pytest.mark.long
def test_a_second_run_leaves_the_first_alone(tmp_path: Path) -> None:
    """Each run writes its own files."""
    for _ in range(2):
        done = benchmark(*small_run(tmp_path, "--num_workers", "0", "--prefetch-factor", "auto"))
        assert done.returncode == 0, done.stderr

    assert len(figures_in(tmp_path)) == 2


@pytest.mark.long
def test_nothing_measured_is_a_failure(tmp_path: Path) -> None:
    """Without a frame after the warm-up: exit code 1, the reason, and no file."""
    done = benchmark(*small_run(tmp_path, "--num_batches", "0"))

    assert done.returncode == 1
    assert "no frame was measured" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_decoding_on_a_gpu_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """The error names the missing GPU."""
    done = benchmark(*small_run(tmp_path, "--video_decode_device", "cuda"), CUDA_VISIBLE_DEVICES="")

    assert done.returncode == 1
    assert "want a CUDA GPU, found none" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.long
def test_the_reference_command_line_reads_from_the_hub(hub: Hub, tmp_path: Path) -> None:
    """The command of LeRobot's documentation works: a name on the Hub, no folder."""
    hub.add_repo("lab/cups").commit(ROOT, tags=["v3.0"])
    flags = "--repo_id lab/cups --mode single --source hub --batch_size 8 --num_workers 2"
    flags += f" --num_batches 6 --max_num_shards 4 --episode_pool_size 32 --out_dir {tmp_path}/out"
    done = benchmark(
        *flags.split(),
        HF_ENDPOINT=hub.url,
        HF_HOME=str(tmp_path / "home"),
        HF_HUB_DISABLE_TELEMETRY="1",
        HF_HUB_DISABLE_XET="1",
    )
    assert done.returncode == 0, done.stderr
    (figures,) = figures_in(tmp_path / "out")

    assert figures["frames_measured"] == 48
    assert figures["source"] == "hub"
    assert any(name.endswith(".mp4") for name in hub.downloads("lab/cups"))


def test_a_folder_is_named_as_such(tmp_path: Path) -> None:
    """A run on a folder has the source "local"."""
    flags = f"--repo_id local --root {ROOT} --batch_size 8 --num_workers 0 --num_batches 2"
    done = benchmark(*flags.split(), "--floor_s", "0", "--out_dir", str(tmp_path))

    assert done.stdout.startswith(f"{ROOT} (local): single, batches of 8"), done.stderr
    assert [figures["source"] for figures in figures_in(tmp_path)] == ["local"]


def test_results_keep_no_secret_of_an_address() -> None:
    """A password in the root is removed."""
    root = "https://me:secret@host/cups"
    figures = written_settings(parse_settings(repo_id="cups", root=root, data_files_root=root))

    assert "secret" not in json.dumps(figures)
    assert "host/cups" in figures["root"]


@pytest.mark.long
def test_each_rank_of_a_launcher_keeps_its_own(tmp_path: Path) -> None:
    """It reads its share; its rank is in the figures and in the file name."""
    ranks = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "LOCAL_RANK": "1"}
    done = benchmark(*small_run(tmp_path, "--num_batches", "3"), **ranks)
    assert done.returncode == 0, done.stderr
    (figures,) = figures_in(tmp_path)
    (path,) = tmp_path.glob("*.json")

    assert "_cpu_r1of2_" in path.name
    assert (figures["node"]["rank"], figures["node"]["world_size"]) == (1, 2)
    assert (figures["node"]["num_nodes"], figures["node"]["ranks_per_node"]) == (1, 2)
    assert figures["frames_measured"] == 3 * 8


@pytest.mark.parametrize("source", ["", "a/b", "../up"])
def test_a_source_label_is_safe_in_a_file_name(source: str) -> None:
    """Labels with other characters raise."""
    with pytest.raises(SelectionError, match="source label"):
        measure_stream(parse_settings(repo_id="some/name", source=source))
