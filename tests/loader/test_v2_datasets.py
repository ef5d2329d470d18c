# SPDX-License-Identifier: Apache-2.0
"""Datasets of v2.0 and v2.1, streamed and read by index: equal to their v3.0 conversion."""

from __future__ import annotations

import functools
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from robostream import LeRobotDataset, config
from robostream.batches.source_reader import SourceReader
from robostream.errors import DataFileError, MetadataError, StateError
from robostream.storage.remote_source import RemoteSource
from robostream.testing import serve_files, start_proxy
from tests.fixture_datasets import FIXTURES, copy_of, v20_of
from tests.loader.streams import flat, open_loader, open_stream

VIDEOS, CONVERTED = FIXTURES / "v21_videos", FIXTURES / "v21_videos_as_v30"
TOP = "observation.images.top"
FRAMES = 143
WINDOWS = {"action": [-0.05, 0.0, 0.1], TOP: [-0.1, 0.0, 0.05]}


def data_file(root: Path, episode: int) -> Path:
    return root / f"data/chunk-000/episode_{episode:06d}.parquet"


def assert_equal_batches(found: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> None:
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        assert one.keys() == other.keys()
        for key, value in other.items():
            same = torch.equal(one[key], value) if torch.is_tensor(value) else one[key] == value
            assert same, key


@functools.cache
def converted_epoch() -> list[dict[str, Any]]:
    """An epoch of what LeRobot's converter made of the v2.1 dataset."""
    return list(open_loader(open_stream(CONVERTED, delta_timestamps=WINDOWS, seed=7), 8))


@pytest.mark.parametrize("workers", [0, 2])
def test_both_versions_deliver_the_same_batches(workers: int) -> None:
    """Values, pixels, windows, pads and order equal those of the conversion, with one seed."""
    stream = open_stream(VIDEOS, delta_timestamps=WINDOWS, seed=7)

    assert_equal_batches(list(open_loader(stream, 8, num_workers=workers)), converted_epoch())


def test_a_v20_dataset_delivers_the_same_batches(tmp_path: Path) -> None:
    """Only its statistics are stored otherwise."""
    root = v20_of("v21_videos", tmp_path)
    stream = open_stream(root, delta_timestamps=WINDOWS, seed=7)

    assert_equal_batches(list(open_loader(stream, 8)), converted_epoch())


def test_both_versions_have_the_same_receipts() -> None:
    """States after each batch differ in the fingerprint alone."""
    states = []
    for root in (VIDEOS, CONVERTED):
        loader = open_loader(open_stream(root, camera_keys=[], seed=7), 8)
        states.append([loader.state_dict() for _ in loader])

    for old, new in zip(*states, strict=True):
        assert old.pop("fingerprint") != new.pop("fingerprint")
        assert old == new


@pytest.mark.parametrize(("saved", "loaded"), [("v2.1", "v3.0"), ("v3.0", "v2.1")])
def test_a_state_does_not_cross_versions(saved: str, loaded: str) -> None:
    """The error says that versions differ, though the recording is the same."""
    roots = {"v2.1": VIDEOS, "v3.0": CONVERTED}
    state = open_loader(open_stream(roots[saved], camera_keys=[]), 8).state_dict()
    loader = open_loader(open_stream(roots[loaded], camera_keys=[]), 8)

    message = f"of a {saved} dataset, this one is {loaded}: a state does not cross versions"
    with pytest.raises(StateError, match=message):
        loader.load_state_dict(state)


def test_a_state_of_another_recording_says_nothing_of_versions() -> None:
    """Datasets of one version are only different datasets."""
    state = open_loader(open_stream(VIDEOS, camera_keys=[]), 8).state_dict()
    loader = open_loader(open_stream(FIXTURES / "v21_images", camera_keys=[]), 8)

    with pytest.raises(StateError, match=r"It differs in dataset \(fingerprint\)") as refusal:
        loader.load_state_dict(state)
    assert "cross versions" not in str(refusal.value)


def test_a_state_resumes() -> None:
    """The rest of an epoch follows, in the same order."""
    whole = flat(open_loader(open_stream(VIDEOS, camera_keys=[]), 8))
    loader = open_loader(open_stream(VIDEOS, camera_keys=[]), 8)
    batches = iter(loader)
    first = flat(next(batches) for _ in range(5))
    again = open_loader(open_stream(VIDEOS, camera_keys=[]), 8)
    again.load_state_dict(loader.state_dict())

    assert first + flat(again) == whole


def test_a_bad_video_costs_its_episode_alone(tmp_path: Path) -> None:
    """Quarantine leaves out the episode of a truncated file."""
    root = copy_of("v21_videos", tmp_path)
    path = root / f"videos/chunk-000/{TOP}/episode_000001.mp4"
    path.write_bytes(path.read_bytes()[:600])
    loader = open_loader(open_stream(root, on_bad_episode="quarantine"), 8)

    assert set(flat(loader)) == set(range(FRAMES)) - set(range(37, 61))
    assert loader.state_dict()["quarantined"] == [1]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (20, r"episode 1 should be rows \[0, 24\) of the file, which has 20"),
        (30, r"episode 1 has 24 frames in meta/, but the file has 30 rows"),
    ],
)
def test_a_length_that_differs_from_the_file_is_an_error(
    tmp_path: Path, rows: int, message: str
) -> None:
    """It names the file and both numbers, by index and streamed."""
    root = copy_of("v21_videos", tmp_path)
    table = pq.read_table(data_file(root, 1))
    pq.write_table(pa.concat_tables([table, table]).slice(0, rows), data_file(root, 1))

    with pytest.raises(DataFileError, match=message):
        LeRobotDataset("some/name", root=root, camera_keys=[])[37]
    with pytest.raises(DataFileError, match=message):
        list(open_loader(open_stream(root, camera_keys=[]), 8))


def test_an_image_without_bytes_is_an_error(tmp_path: Path) -> None:
    """Old recorders stored paths of images; the files are not part of the dataset."""
    root = copy_of("v21_images", tmp_path)
    table = pq.read_table(data_file(root, 0))
    at = table.column_names.index(TOP)
    cells = [{"bytes": None, "path": f"images/{i}.png"} for i in range(table.num_rows)]
    column = pa.array(cells, table.schema.field(TOP).type)
    pq.write_table(table.set_column(at, table.schema.field(TOP), column), data_file(root, 0))

    with pytest.raises(DataFileError, match=r"image is missing from the file \(only a path was"):
        LeRobotDataset("some/name", root=root)[3]


@pytest.mark.parametrize(
    "file", ["data/chunk-000/episode_000001.parquet", f"videos/chunk-000/{TOP}/episode_000001.mp4"]
)
def test_a_missing_remote_file_costs_its_episode_alone(tmp_path: Path, file: str) -> None:
    """It is an error of the dataset, which quarantine leaves out."""
    root = copy_of("v21_videos", tmp_path)
    (root / file).unlink()
    with serve_files(root) as server:
        options = {"on_bad_episode": "quarantine", "cache_dir": tmp_path / "cache"}
        delivered = flat(open_loader(open_stream(server, **options), 8))

    assert set(delivered) == set(range(FRAMES)) - set(range(37, 61))


def test_a_task_that_no_file_names_is_an_error(tmp_path: Path) -> None:
    """The error names the file of v2.x."""
    root = copy_of("v21_videos", tmp_path)
    path = root / "meta/tasks.jsonl"
    path.write_text(path.read_text().splitlines()[0])
    (root / "meta/episodes_stats.jsonl").unlink()

    with pytest.raises(MetadataError, match=r"meta/tasks\.jsonl: a frame has task_index 1"):
        LeRobotDataset("some/name", root=root, camera_keys=[])[37]


@pytest.mark.parametrize("name", ["v21_videos", "v21_images"])
def test_a_remote_file_takes_few_requests(name: str, tmp_path: Path) -> None:
    """One or two for each file, none for statistics, and what arrives equals the local files."""
    with serve_files(FIXTURES / name) as server, start_proxy(server) as proxy:
        stream = open_stream(proxy.url, cache_dir=tmp_path / "cache")
        batches = list(open_loader(stream, 8))
        requests = Counter(exchange.path for exchange in proxy.journal())
    files = {f"/{p.relative_to(FIXTURES / name)}" for p in (FIXTURES / name).rglob("*.[mp][pa]*")}

    assert_equal_batches(batches, list(open_loader(open_stream(FIXTURES / name), 8)))
    assert {path for path in requests if not path.startswith("/meta")} == files
    # The loader looks at a first image too.
    assert sum(requests[path] for path in files) <= 2 * len(files) + (name == "v21_images")
    wanted = {"/meta/info.json", "/meta/episodes.jsonl", "/meta/tasks.jsonl"}
    assert {path: requests[path] for path in requests if path.startswith("/meta")} == dict.fromkeys(
        wanted, 2
    )


class Gate:
    """Counts the calls of a method that run at a time; each waits until there are `wanted`.

    After `longest_s` in vain, none waits any more.
    """

    def __init__(self, wanted: int, longest_s: float) -> None:
        self.most = self._inside = 0
        self._wanted, self._longest_s = wanted, longest_s
        self._changed = threading.Condition()

    def hold(self, call: Callable[..., None]) -> Callable[..., None]:
        """Return the method, whose calls pass through this gate."""

        def held(*args: Any) -> None:
            with self._changed:
                self._inside += 1
                self.most = max(self.most, self._inside)
                self._changed.notify_all()
                if not self._changed.wait_for(lambda: self.most >= self._wanted, self._longest_s):
                    self._wanted = 0
            try:
                call(*args)
            finally:
                with self._changed:
                    self._inside -= 1

        return held


@pytest.mark.parametrize(("root", "requests"), [(VIDEOS, 8), (CONVERTED, 4)])
def test_more_small_files_are_fetched_at_a_time(
    root: Path, requests: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each takes a round trip and little of the bandwidth."""
    gate = Gate(requests, longest_s=30.0)
    monkeypatch.setattr(SourceReader, "fetch", gate.hold(SourceReader.fetch))
    with serve_files(root) as server:
        stream = open_stream(server, cache_dir=tmp_path / "cache", lanes=12)
        delivered = flat(open_loader(stream, 8))

    assert gate.most == requests
    assert sorted(delivered) == list(range(FRAMES))


def test_few_long_requests_run_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They share the bandwidth, and hold their bytes in memory."""
    monkeypatch.setattr(config, "WHOLE_FILE_BYTES", 0)
    gate = Gate(config.PREFETCH_REQUESTS + 1, longest_s=0.05)
    monkeypatch.setattr(RemoteSource, "prefetch", gate.hold(RemoteSource.prefetch))
    with serve_files(VIDEOS) as server:
        stream = open_stream(server, cache_dir=tmp_path / "cache", lanes=12)
        delivered = flat(open_loader(stream, 8))

    assert 0 < gate.most <= config.PREFETCH_REQUESTS
    assert sorted(delivered) == list(range(FRAMES))
