# SPDX-License-Identifier: Apache-2.0
"""One episode is looked at closely, with the checks of the doctor."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import av
import fsspec
import numpy as np
import pytest

from robostream.assemble import DatasetLocation
from robostream.decode import build_index
from robostream.errors import SelectionError
from robostream.meta import LeRobotDatasetMetadata
from robostream.storage import LocalSource
from robostream.tools import CloseLook, look_closely, look_json, look_text
from robostream.tools.doctor.files import decoders, list_files, match_table
from robostream.tools.doctor.findings import Verdict
from tests.fixture_datasets import FIXTURES, NAMES, copy_of, edit_info
from tests.tools.doctor.broken import POINTER, punch_20_kb

NAME = "h264_bframes"
CAMERA = "observation.images.top"
CLIP = f"videos/{CAMERA}/chunk-000/file-000.mp4"
ROWS = "data/chunk-000/file-000.parquet"


def look(dataset: Path | str, *, episode: int = 0, device: str = "cpu", **where: str) -> CloseLook:
    address = DatasetLocation(str(dataset), **where)
    return look_closely(address, episode=episode, cameras=None, device=device)


def failed(found: CloseLook) -> list[str]:
    return [f.check.id for f in found.findings if f.verdict == Verdict.ERROR]


@pytest.mark.parametrize("name", NAMES)
def test_episodes_of_lerobot_decode(name: str) -> None:
    """Every episode of every fixture decodes as a whole, with all its cameras."""
    meta = LeRobotDatasetMetadata(name, root=FIXTURES / name)
    for episode, length in enumerate(meta.episodes["length"].tolist()):
        found = look(FIXTURES / name, episode=episode)

        assert found.decodes, look_text(found, width=100)
        assert [*found.facts] == ["dataset", *meta.camera_keys]
        assert all(found.facts[key]["decoding"]["images"] == length for key in meta.camera_keys)
    assert look_json(found)["decodes"] is True
    assert "OK: episode" in look_text(found, width=100)


def test_images_are_those_of_the_episode() -> None:
    """Their mean is that of the frames which FFmpeg decodes there."""
    facts = look(FIXTURES / "av1_multifile", episode=1).facts[CAMERA]
    with av.open(str(FIXTURES / "av1_multifile" / facts["file"][""])) as container:
        frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    first, last = (int(word) for word in facts["span"]["frames"].split()[:3:2])

    assert last - first + 1 == facts["decoding"]["images"]
    wanted = np.mean(frames[first : last + 1], axis=(0, 1, 2)) / 255
    assert facts["images"]["mean"] == pytest.approx(wanted, abs=0.01)


@pytest.mark.parametrize("name", ["h264_bframes", "h264_long_gop", "av1_multifile"])
def test_key_frames_agree_with_ffmpeg(name: str) -> None:
    """Distances between key frames, and whether frames are reordered, agree with FFmpeg."""
    found = look(FIXTURES / name)
    camera = [*found.facts][1]
    with av.open(str(FIXTURES / name / found.facts[camera]["file"][""])) as container:
        packets = [p for p in container.demux(video=0) if p.size]
    order = sorted(packets, key=lambda p: p.pts)
    gaps = np.diff([*(at for at, p in enumerate(order) if p.is_keyframe), len(order)])
    facts = found.facts[camera]["key frames"]

    assert facts["every"] == f"{np.median(gaps):g} frames"
    assert facts["longest"] == gaps.max()
    assert facts["B-frames"] == ("yes" if order != packets else "no")


def test_a_fault_of_another_episode_is_left_out(sound: Path, tmp_path: Path) -> None:
    """A damaged episode in the same file does not prevent this one from being loaded."""
    root = Path(shutil.copytree(sound, tmp_path / "zeros"))
    punch_20_kb(root)
    whole = [look(root, episode=episode).decodes for episode in range(6)]

    assert whole[0]
    assert not all(whole[:3])
    assert all(whole[3:])


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [(CLIP, POINTER, "git lfs pull"), (CLIP, "<html>Sign in</html>", "hf auth login")],
)
def test_a_bad_video_is_recognised(tmp_path: Path, file: str, content: str, words: str) -> None:
    """The text has the verdict, the path and the cure."""
    root = copy_of(NAME, tmp_path)
    (root / file).write_text(content)
    found = look(root)

    assert failed(found) == ["files"]
    assert words in look_text(found, width=100)
    assert f" {CLIP}: want" in " ".join(look_text(found, width=100).split())
    assert look_text(found, width=100).endswith("FAILED: see the errors.")


def test_bad_rows_do_not_hide_good_videos(tmp_path: Path) -> None:
    """Without its rows, the videos of an episode are looked at nevertheless."""
    root = copy_of(NAME, tmp_path)
    (root / ROWS).unlink()
    found = look(root)

    assert failed(found) == ["files"]
    assert found.facts[CAMERA]["decoding"]["images"] == 23


@pytest.mark.parametrize(
    ("damage", "check", "words"),
    [
        (
            lambda root: (root / "meta/tasks.parquet").write_text(POINTER),
            "metadata",
            "git lfs pull",
        ),
        (
            lambda root: edit_info(root, lambda info: info.update(codebase_version="v1.6")),
            "version",
            "v1.6",
        ),
    ],
)
def test_a_dataset_that_does_not_open_says_why(
    tmp_path: Path, damage: object, check: str, words: str
) -> None:
    """A clone without Git LFS has pointers in meta/ too; other versions have their own message."""
    root = copy_of(NAME, tmp_path)
    damage(root)  # type: ignore[operator]
    found = look(root)

    assert found.facts == {}
    assert failed(found) == [check]
    assert words in " ".join(look_text(found, width=100).split())


def test_files_are_read_where_the_dataset_is(tmp_path: Path) -> None:
    """An fsspec URL works, also for data/ and videos/ alone."""
    url = f"memory:/{tmp_path}/cups"
    fsspec.filesystem("memory").put(str(FIXTURES / NAME), url, recursive=True)
    alone = copy_of(NAME, tmp_path)
    (alone / CLIP).unlink()

    assert look(url).decodes
    assert look(alone, data_files_root=url).decodes
    assert look("my/name", root=url).decodes


@pytest.mark.parametrize(
    ("episode", "cameras", "words"),
    [(9, None, "has 2"), (-1, None, "has 2"), (0, ["left"], "are observation.images")],
)
def test_unknown_episodes_and_cameras_are_rejected(
    episode: int, cameras: list[str] | None, words: str
) -> None:
    """The error lists the existing ones."""
    with pytest.raises(SelectionError, match=words):
        look_closely(
            DatasetLocation(str(FIXTURES / NAME)), episode=episode, cameras=cameras, device="cpu"
        )


def test_a_missing_decoder_is_recognised() -> None:
    """PyAV built without libdav1d, for example, knows AV1 but cannot decode it."""
    meta = LeRobotDatasetMetadata("a", root=FIXTURES / NAME)
    listed = next(file for file in list_files(meta) if file.camera)
    index = build_index(LocalSource(FIXTURES / NAME / CLIP))
    other = replace(index, configs=(replace(index.configs[0], decoder="libnothing"),))

    assert list(decoders.find(match_table(listed, index))) == []
    (remark,) = decoders.find(match_table(listed, other))
    assert "no decoder libnothing" in remark.what


def test_cuda_must_work_if_requested() -> None:
    """With device "cuda", the verdict includes the GPU; with "cpu", it does not."""
    found = look(FIXTURES / NAME, device="cuda")
    refused = str(found.facts[CAMERA]["on the GPU"][""]).startswith("no: ")

    assert failed(found) == (["gpu"] if refused else [])
    assert look(FIXTURES / NAME).decodes
