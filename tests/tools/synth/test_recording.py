# SPDX-License-Identifier: Apache-2.0
"""Synthetic datasets hold what their script says, byte for byte the same for the same spec."""

from __future__ import annotations

import gc
import io
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import av
import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
import pytest
from PIL import Image

from robostream.dataset import LeRobotDataset
from robostream.errors import WriteError
from robostream.meta import DepthCoding, decode_depth
from robostream.tools import SynthSpec, make_dataset
from robostream.tools.synth.recording import DEPTH_KEY, frames_of, image_key, script_of
from tests.loader.programs import without_progress
from tests.write.recording import file_size_limit

REPO = Path(__file__).parents[3]
SMALL = SynthSpec(
    episodes=3,
    min_frames=6,
    max_frames=12,
    cameras=2,
    width=64,
    height=64,
    tasks=2,
    seed=5,
    crf=18,
)


def contents_of(root: Path) -> dict[str, bytes]:
    """Return every file below a folder."""
    files = (path for path in sorted(root.rglob("*")) if path.is_file())
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The dataset of SMALL."""
    root = tmp_path_factory.mktemp("synth") / "small"
    make_dataset(root, SMALL)
    return root


def test_rows_are_those_of_the_script(small: Path) -> None:
    """States, actions, rewards, ends and tasks of every row are those of its episode's script."""
    table = pq.read_table(small / "data").sort_by("index").to_pydict()
    tasks = pq.read_table(small / "meta" / "tasks.parquet").to_pydict()
    text_of = dict(zip(tasks["task_index"], tasks["task"], strict=True))
    scripts = [script_of(SMALL, episode) for episode in range(SMALL.episodes)]

    assert np.array_equal(
        np.array(table["observation.state"], np.float32),
        np.concatenate([s.joints for s in scripts]),
    )
    assert np.array_equal(
        np.array(table["action"], np.float32), np.concatenate([s.actions for s in scripts])
    )
    assert table["next.reward"] == np.concatenate([s.rewards for s in scripts]).tolist()
    assert table["next.done"] == [
        frame == s.num_frames - 1 for s in scripts for frame in range(s.num_frames)
    ]
    assert [text_of[i] for i in table["task_index"]] == [
        str(s.task) for s in scripts for _ in range(s.num_frames)
    ]


def test_videos_show_what_was_drawn(small: Path) -> None:
    """Each image read back is nearer to the one drawn for its frame than to any other."""
    frames = [f for e in range(SMALL.episodes) for f in frames_of(SMALL, script_of(SMALL, e))]
    for key in (image_key("front"), image_key("wrist")):
        drawn = np.stack([frame[key] for frame in frames]).astype(int)
        read = decoded(small, key, "rgb24")
        errors = np.array([np.abs(drawn - image).mean((1, 2, 3)) for image in read])

        assert errors.argmin(1).tolist() == list(range(len(frames)))
        assert errors.diagonal().max() < 10


def decoded(root: Path, key: str, pixel_format: str) -> list[npt.NDArray[np.int64]]:
    """Return all images of a camera whose episodes share one video file."""
    (path,) = (root / "videos" / key).rglob("*.mp4")
    with av.open(path) as container:
        return [
            frame.to_ndarray(format=pixel_format).astype(np.int64)
            for frame in container.decode(video=0)
        ]


def test_the_same_spec_gives_the_same_files(small: Path, tmp_path: Path) -> None:
    """Two processes write byte for byte the same dataset."""
    code = (
        "import sys; from pathlib import Path; from tests.tools.synth.test_recording import SMALL; "
        "from robostream.tools import make_dataset; make_dataset(Path(sys.argv[1]), SMALL)"
    )
    again = tmp_path / "again"
    command = [sys.executable, "-c", code, str(again)]
    subprocess.run(command, cwd=REPO, check=True, capture_output=True)
    first, second = contents_of(small), contents_of(again)

    assert first.keys() == second.keys()
    assert [name for name in first if first[name] != second[name]] == []


@pytest.mark.long
@pytest.mark.parametrize(
    "changes",
    [{}, {"depth": True, "image_cameras": 1}, {"codec": "h264", "gop": 20, "video_file_mb": 0.01}],
)
def test_any_number_of_jobs_gives_the_same_files(tmp_path: Path, changes: dict[str, Any]) -> None:
    """The processes that make episodes decide nothing but the speed."""
    spec = replace(SMALL, episodes=5, **changes)
    for jobs in (1, 3):
        make_dataset(tmp_path / str(jobs), spec, jobs=jobs)
    first, second = contents_of(tmp_path / "1"), contents_of(tmp_path / "3")

    assert first.keys() == second.keys()
    assert [name for name in first if first[name] != second[name]] == []


@pytest.mark.long
@pytest.mark.parametrize("image_cameras", [0, 2])
def test_fewer_distinct_episodes_are_repeated(tmp_path: Path, image_cameras: int) -> None:
    """Each has rows and pictures of its own, and they are those of the one it repeats."""
    spec = replace(SMALL, episodes=7, distinct=3, image_cameras=image_cameras)
    make_dataset(tmp_path / "seven", spec, jobs=2)
    dataset = LeRobotDataset("some/name", root=tmp_path / "seven")
    starts = dataset.meta.episodes["dataset_from_index"]
    first, again = dataset[int(starts[1])], dataset[int(starts[4])]

    assert dataset.num_episodes == 7
    assert [int(n) for n in dataset.meta.episodes["length"]] == [
        len(list(frames_of(spec, script_of(spec, episode)))) for episode in range(7)
    ]
    assert (int(first["episode_index"]), int(again["episode_index"])) == (1, 4)
    for key in ("observation.state", image_key("front"), image_key("wrist")):
        assert np.array_equal(first[key], again[key])


def test_an_episode_depends_on_seed_and_number_alone() -> None:
    """A longer dataset begins with the episodes of a shorter one."""
    longer = replace(SMALL, episodes=9)
    first = next(frames_of(SMALL, script_of(SMALL, 2)))
    same = next(frames_of(longer, script_of(longer, 2)))

    assert all(np.array_equal(first[key], same[key]) for key in first)


def test_small_limits_spread_a_dataset_over_files(tmp_path: Path) -> None:
    """With tiny size limits every episode has files of its own, and the report counts them."""
    spec = replace(SMALL, data_file_mb=0.001, video_file_mb=0.001)
    report = make_dataset(tmp_path / "spread", spec)

    assert report.episodes == 3
    assert report.data_files == 3
    assert report.video_files == 6
    assert report.frames == sum(script_of(spec, e).num_frames for e in range(3))
    assert report.size_bytes == sum(len(data) for data in contents_of(tmp_path / "spread").values())
    assert set(report.camera_kbit_per_s) == {image_key("front"), image_key("wrist")}
    assert min(report.camera_kbit_per_s.values()) > 0


def test_images_and_depth_are_stored_as_asked(tmp_path: Path) -> None:
    """The last cameras are images without loss; depth loses no more than its codes do."""
    root = tmp_path / "mixed"
    spec = replace(SMALL, episodes=1, image_cameras=1, depth=True)
    report = make_dataset(root, spec)
    drawn = list(frames_of(spec, script_of(spec, 0)))
    stored = pq.read_table(root / "data")[image_key("wrist")].to_pylist()
    wrist = [np.asarray(Image.open(io.BytesIO(cell["bytes"]))) for cell in stored]
    codes = np.stack(decoded(root, DEPTH_KEY, "gray12le"))
    depth_m = decode_depth(codes.astype(np.uint16), DepthCoding(), "m")

    assert set(report.camera_kbit_per_s) == {image_key("front"), DEPTH_KEY}
    assert np.array_equal(wrist, [frame[image_key("wrist")] for frame in drawn])
    assert depth_m == pytest.approx(np.stack([f[DEPTH_KEY][..., 0] for f in drawn]), abs=2e-3)


def test_images_alone_need_no_videos(tmp_path: Path) -> None:
    """A dataset whose cameras are all images has no videos folder."""
    spec = replace(SMALL, episodes=1, cameras=1, image_cameras=1)
    report = make_dataset(tmp_path / "images", spec)

    assert report.video_files == 0
    assert report.camera_kbit_per_s == {}
    assert not (tmp_path / "images" / "videos").exists()


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    """A destination in use is refused before anything is written; an empty one is taken."""
    full = tmp_path / "full"
    full.mkdir()
    (full / "keep.txt").write_text("mine")
    with pytest.raises(WriteError, match="not empty"):
        make_dataset(full, SMALL)
    with pytest.raises(WriteError, match="a file"):
        make_dataset(full / "keep.txt", SMALL)
    (tmp_path / "empty").mkdir()
    tiny = replace(SMALL, episodes=1, cameras=1, image_cameras=1)
    make_dataset(tmp_path / "empty", tiny)

    assert contents_of(full) == {"keep.txt": b"mine"}
    assert (tmp_path / "empty" / "meta" / "info.json").is_file()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "full"]


def test_a_failure_leaves_nothing_behind(tmp_path: Path) -> None:
    """When the encoder or the disk refuses, there is an error and no trace of the dataset."""
    with pytest.raises(ValueError, match="refuses"):
        make_dataset(tmp_path / "refused", replace(SMALL, preset="nonsense"))
    (tmp_path / "file").write_text("")
    with pytest.raises(WriteError, match="Choose another destination"):
        make_dataset(tmp_path / "file" / "below", SMALL)

    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("limit_bytes", [2_000, 10_000])
def test_a_full_disk_is_said_once_and_leaves_nothing(
    limit_bytes: int,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """While episodes are encoded or joined; without advice on going on with what is gone."""
    wanted = f"cannot make a dataset in {tmp_path}/new: File too large. Nothing was left"
    with file_size_limit(limit_bytes), pytest.raises(WriteError, match=wanted):
        make_dataset(tmp_path / "new", replace(SMALL, episodes=8))
    gc.collect()

    assert list(tmp_path.iterdir()) == []
    assert without_progress(capfd.readouterr().err) == ""
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"episodes": 0}, "episodes of 1 or more"),
        ({"min_frames": 1}, "2 <= min_frames"),
        ({"min_frames": 400}, "2 <= min_frames"),
        ({"cameras": 0}, "1 to 6 cameras"),
        ({"cameras": 7}, "1 to 6 cameras"),
        ({"image_cameras": 4}, "0 to 3, the number of cameras"),
        ({"width": 30}, "even and 32 or more"),
        ({"height": 33}, "even and 32 or more"),
        ({"width": 48, "depth": True}, "64 or more for HEVC"),
        ({"width": 48, "codec": "hevc"}, "64 or more for HEVC"),
        ({"fps": 0}, "fps of 1 or more"),
        ({"tasks": 0}, "tasks, got 0"),
        ({"tasks": 1000}, "tasks, got 1000"),
        ({"seed": -1}, "a seed of 0 or more"),
        ({"codec": "divx"}, "divx"),
        ({"gop": 0}, "g must be >= 1"),
        ({"data_file_mb": 0}, "data_file_mb above 0"),
        ({"video_file_mb": -1}, "video_file_mb above 0"),
    ],
)
def test_a_spec_that_cannot_be_is_refused_at_birth(changes: dict[str, Any], complaint: str) -> None:
    """Every field out of bounds is a ValueError that says what is wanted and what was found."""
    with pytest.raises(ValueError, match=complaint):
        SynthSpec(**changes)
