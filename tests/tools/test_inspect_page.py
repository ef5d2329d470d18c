# SPDX-License-Identifier: Apache-2.0
"""The page of a dataset: what it shows, and how a browser lays it out."""

from __future__ import annotations

import base64
import io
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from robostream import LeRobotDataset
from robostream.assemble import DatasetLocation, OpenedDataset, SampleOptions, open_dataset
from robostream.errors import SelectionError
from robostream.testing import serve_files
from robostream.tools import inspect_html, sheet_of, view_episode, viewer_command
from robostream.write import create_writer
from tests.bench.chromium import look_at
from tests.fixture_datasets import FIXTURES, NAMES, copy_of, edit_info
from tests.tools.doctor.broken import JOINTS


def opened(root: Path | str) -> OpenedDataset:
    return open_dataset(DatasetLocation(str(root)), SampleOptions())


def page_of(dataset: OpenedDataset, episode: int = 0) -> str:
    return inspect_html(dataset, view_episode(dataset, episode))


@pytest.mark.parametrize("name", NAMES)
def test_a_page_shows_every_camera_and_every_number(name: str) -> None:
    """A strip for each camera, a chart for each numeric feature, and it fetches nothing."""
    dataset = opened(FIXTURES / name)
    page = page_of(dataset)
    view = view_episode(dataset, 0)

    assert page.count('class="strip') == len(dataset.meta.camera_keys)
    for key in view.strips:
        assert f"<h3>{key}</h3>" in page
    assert {"action", "observation.state"} <= set(view.curves)
    lines = sum(values.shape[1] for values in view.curves.values())
    assert page.count("<polyline") == lines
    bare = re.sub(r'src="data:image/jpeg;base64,[^"]*"', "", page)
    assert re.findall(r"(?:https?:)?//\w|<script|<link|@import|src=|url\((?!#)", bare) == []


@pytest.mark.parametrize("name", ["av1_multifile", "h264_long_gop", "images"])
def test_thumbnails_are_the_frames_of_their_times(name: str) -> None:
    """Each is the map-style item's image, scaled, but for JPEG."""
    dataset = opened(FIXTURES / name)
    view = view_episode(dataset, 1)
    items = LeRobotDataset(str(FIXTURES / name), episodes=[1])
    for key, strip in view.strips.items():
        assert not isinstance(strip, str)
        for frame, image in zip(view.frames, strip, strict=True):
            wanted = np.moveaxis(items[frame][key].numpy(), 0, -1) * 255
            small = np.asarray(image.resize((64, 48), Image.Resampling.BOX), float)

            assert np.abs(small - wanted).mean() < 4


def test_images_of_the_page_are_its_thumbnails() -> None:
    """Embedded as JPEG, in the order of cameras and frames."""
    dataset = opened(FIXTURES / "h264_long_gop")
    view = view_episode(dataset, 2)
    page = inspect_html(dataset, view)
    encoded = re.findall(r'alt="frame (\d+) of ([^"]+)" src="data:image/jpeg;base64,([^"]+)"', page)

    assert [(int(f), key) for f, key, _ in encoded] == [
        (frame, key) for key in view.strips for frame in view.frames
    ]
    for frame, key, content in encoded:
        strip = view.strips[key]
        assert not isinstance(strip, str)
        wanted = np.asarray(strip[view.frames.index(int(frame))], float)
        found = np.asarray(Image.open(io.BytesIO(base64.b64decode(content))), float)
        assert np.abs(found - wanted).mean() < 4


def test_a_remote_dataset_has_the_same_page() -> None:
    """Frames are read from byte ranges of the server's files."""
    with serve_files(FIXTURES) as url:
        page = page_of(opened(f"{url}/av1_multifile"), 1)
    local = page_of(opened(FIXTURES / "av1_multifile"), 1)
    images = re.compile(r'src="(data:[^"]*)"')

    assert len(images.findall(page)) == 2 * 9 + 5
    assert images.findall(page) == images.findall(local)


def test_a_camera_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    """The rest of the page is there."""
    root = copy_of("av1_multifile", tmp_path)
    (root / "videos/observation.images.wrist/chunk-000/file-000.mp4").write_bytes(b"no video")
    dataset = opened(root)
    view = view_episode(dataset, 0)
    page = inspect_html(dataset, view)

    assert isinstance(view.strips["observation.images.wrist"], str)
    assert "file-000.mp4" in page
    assert '<p class="bad">observation.images.wrist, episode 0' in page
    assert page.count('class="strip') == 1


def test_texts_of_a_dataset_are_escaped(tmp_path: Path) -> None:
    """Names and tasks may hold anything."""
    root = copy_of("images", tmp_path)
    text = (root / "meta/info.json").read_text()
    (root / "meta/info.json").write_text(text.replace('"arm"', '"<script>x</script>"'))

    assert "<script>" not in page_of(opened(root))


@pytest.mark.parametrize("episode", [-1, 3])
def test_an_episode_that_is_not_there_is_refused(episode: int) -> None:
    """The message counts those that are."""
    with pytest.raises(SelectionError, match=f"no episode {episode}: .* has 3"):
        view_episode(opened(FIXTURES / "images"), episode)


def test_a_sheet_needs_cameras() -> None:
    """Without any there is nothing to show."""
    options = SampleOptions(camera_keys=[])
    dataset = open_dataset(DatasetLocation(str(FIXTURES / "images")), options)
    with pytest.raises(SelectionError, match="no cameras"):
        sheet_of(dataset, view_episode(dataset, 0))


def test_statistics_and_tasks_are_optional(tmp_path: Path) -> None:
    """A page without stats.json names the command that computes them."""
    root = copy_of("images", tmp_path)
    (root / "meta/stats.json").unlink()

    assert "robostream stats computes them" in page_of(opened(root))


def test_an_episode_of_one_frame_without_cameras_has_a_page(tmp_path: Path) -> None:
    """Its lines are drawn, and numbers and nouns agree."""
    writer = create_writer(tmp_path / "one", fps=30, features={"action": JOINTS})
    writer.add_frame({"action": np.ones(4, np.float32), "task": "stop."})
    writer.save_episode()
    writer.finalize()
    page = page_of(opened(tmp_path / "one"))

    assert "<p>0 cameras: none. " in page
    assert "<p>stop. 1 frame, 0.03 s.</p>" in page
    assert "The only episode has 1 frame." in page
    assert page.count('points="0.0,') == 4


def test_the_viewers_command_opens_local_datasets() -> None:
    """LeRobot opens neither the address of a web server nor v2.1, so they have no command."""
    assert viewer_command(opened(FIXTURES / "v21_videos").meta, 0) is None
    with serve_files(FIXTURES) as url:
        assert viewer_command(opened(f"{url}/images").meta, 0) is None
    command = viewer_command(opened(FIXTURES / "images").meta, 2)
    assert command is not None

    assert command[:3] == ["lerobot-dataset-viz", "--repo-id", "local/images"]
    assert command[3:] == ["--root", str(FIXTURES / "images"), "--episode-index", "2"]


@pytest.mark.usefixtures("browser")
@pytest.mark.long
@pytest.mark.parametrize(("width", "shown"), [(1280, 9), (390, 3)])
def test_a_browser_draws_the_page(tmp_path: Path, width: int, shown: int) -> None:
    """Strips and charts have the same edges, text is readable, nothing overflows or is fetched."""
    dataset = opened(FIXTURES / "h264_long_gop")
    page = tmp_path / "page.html"
    page.write_text(page_of(dataset))
    seen = look_at(page, width=width)
    strips = seen["images"][: 2 * shown]
    left, right = min(box[0] for box in strips), max(box[1] for box in strips)

    assert seen["scrollWidth"] == width
    assert seen["beyond"] == []
    assert seen["smallestText"] >= 13
    assert seen["fetched"] == []
    assert len(seen["images"]) == 2 * shown + 3  # two cameras, and three episodes
    assert all(abs(box[0] - left) < 2 and abs(box[1] - right) < 2 for box in seen["charts"])
    assert len(seen["lines"]) == 7 + 6 + 1 + 1
    assert all(box[2] > 5 for box in seen["lines"])


@pytest.mark.usefixtures("browser")
@pytest.mark.long
def test_long_names_do_not_widen_the_page(tmp_path: Path) -> None:
    """A path, joint or camera of one long word is broken, also on a phone."""
    root = copy_of("h264_long_gop", tmp_path / ("folder" * 20))
    names = {"names": [f"{number}{'joint' * 20}" for number in range(7)]}
    edit_info(root, lambda info: info["features"]["action"].update(names))
    page = tmp_path / "page.html"
    page.write_text(page_of(opened(root)))

    assert look_at(page, width=390)["scrollWidth"] == 390
