# SPDX-License-Identifier: Apache-2.0
"""An episode decodes, or the diagnosis explains why not and what to do."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import av
import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from robostream.assemble import DatasetLocation
from robostream.decode import build_index
from robostream.errors import SelectionError
from robostream.meta import LeRobotDatasetMetadata
from robostream.storage import LocalSource
from robostream.tools import Diagnosis, diagnose_episode, diagnosis_json, diagnosis_text
from robostream.tools.diagnose.machine import Gpu, explain_import
from robostream.tools.diagnose.video import describe_gops, explain_missing_decoder
from tests.fixture_datasets import FIXTURES, NAMES, copy_of, edit_info

NAME = "h264_bframes"
CAMERA = "observation.images.top"
CLIP = f"videos/{CAMERA}/chunk-000/file-000.mp4"
ROWS = "data/chunk-000/file-000.parquet"
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0a1b\nsize 23456789\n"


def look(dataset: Path | str, *, episode: int = 0, device: str = "cpu", **where: str) -> Diagnosis:
    address = DatasetLocation(str(dataset), **where)
    return diagnose_episode(address, episode=episode, cameras=None, device=device)


def encode(path: Path, *, count: int, value: int) -> None:
    """Write an H.264 video of plain frames with the fixture's size and rate."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=10, options={"g": "2", "bf": "0"})
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        image = np.full((48, 64, 3), value, np.uint8)
        for _ in range(count):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, "rgb24")))
        container.mux(stream.encode(None))


@pytest.mark.parametrize("name", NAMES)
def test_datasets_of_lerobot_decode(name: str) -> None:
    """Every episode of every fixture decodes with matching times, also according to JSON."""
    meta = LeRobotDatasetMetadata(name, root=FIXTURES / name)
    for episode, length in enumerate(meta.episodes["length"].tolist()):
        found = look(FIXTURES / name, episode=episode)

        assert found.decodes, diagnosis_text(found)
        assert [camera.key for camera in found.cameras] == meta.camera_keys
        assert all(camera.rate and camera.rate.images == length for camera in found.cameras)
        assert all(camera.span is None or camera.span.matches for camera in found.cameras)
    figures = json.loads(diagnosis_json(found))
    assert figures["decodes"] is True
    assert figures["cameras"][0]["file"]["size_bytes"] > 0


def test_the_frame_shown_is_the_first_of_the_episode() -> None:
    """Means and ranges equal those of the frame that FFmpeg decodes there."""
    found = look(FIXTURES / "av1_multifile", episode=1).cameras[0]
    assert found.span is not None
    assert found.picture is not None
    with av.open(found.file.path) as container:
        frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    wanted = frames[found.span.first_frame].reshape(-1, 3)

    assert [c.mean for c in found.picture.channels] == pytest.approx(wanted.mean(axis=0))
    assert [c.max for c in found.picture.channels] == wanted.max(axis=0).tolist()


@pytest.mark.parametrize("name", ["h264_bframes", "h264_long_gop", "av1_multifile"])
def test_key_frames_agree_with_ffmpeg(name: str) -> None:
    """Distances between key frames, and whether frames are reordered, agree with FFmpeg."""
    path = next((FIXTURES / name / "videos").rglob("*.mp4"))
    with av.open(str(path)) as container:
        packets = [p for p in container.demux(video=0) if p.size]
    order = sorted(packets, key=lambda p: p.pts)
    keys = [place for place, packet in enumerate(order) if packet.is_keyframe]
    gaps = np.diff([*keys, len(order)])
    gops = describe_gops(build_index(LocalSource(path)))

    assert (gops.count, gops.min_frames, gops.max_frames) == (len(keys), gaps.min(), gaps.max())
    assert gops.median_frames == np.median(gaps)
    assert gops.has_b_frames == (order != packets)


def cut_in_half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def swap_codec(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"avc1", b"zzz1"))


def scramble(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[900:2100] = bytes(byte ^ 0x5A for byte in content[900:2100])
    path.write_bytes(content)


DAMAGES: list[tuple[Callable[[Path], object], str, str]] = [
    (Path.unlink, "missing_file", "hf download"),
    (lambda path: path.write_bytes(b""), "empty", "download the file again"),
    (lambda path: path.write_bytes(POINTER), "lfs_pointer", "git lfs pull"),
    (lambda path: path.write_text("<html>Sign in</html>"), "web_page", "hf auth login"),
    (cut_in_half, "truncated", "download the file again"),
    (swap_codec, "no_decoder", "Install PyAV from PyPI"),
    (scramble, "damaged", "quarantine"),
    (lambda path: encode(path, count=9, value=90), "times", "one revision"),
]


@pytest.mark.parametrize(("damage", "kind", "cure"), DAMAGES, ids=[kind for _, kind, _ in DAMAGES])
def test_a_bad_video_is_recognised(
    tmp_path: Path, damage: Callable[[Path], object], kind: str, cure: str
) -> None:
    """Each kind of damage has a name, an explanation with the path, and a cure."""
    root = copy_of(NAME, tmp_path)
    damage(root / CLIP)
    found = look(root)
    ((place, problem),) = found.problems

    assert not found.decodes
    assert (place, problem.kind) == (CAMERA, kind)
    assert str(root / CLIP) in problem.what
    assert cure in problem.cure
    assert diagnosis_text(found).count("FAILED") == 1


def test_bad_rows_do_not_hide_good_videos(tmp_path: Path) -> None:
    """A missing table is a separate problem; the videos are checked nevertheless."""
    root = copy_of(NAME, tmp_path)
    (root / ROWS).unlink()
    found = look(root)

    assert [(place, problem.kind) for place, problem in found.problems] == [
        ("rows", "missing_file")
    ]
    assert found.cameras[0].rate is not None


def test_placeholders_in_meta_are_recognised(tmp_path: Path) -> None:
    """A clone without Git LFS has pointers in meta/ too, so the dataset does not open."""
    root = copy_of(NAME, tmp_path)
    (root / "meta/tasks.parquet").write_bytes(POINTER)
    found = look(root)

    assert found.dataset is None
    assert found.problems[0][1].kind == "lfs_pointer"
    assert "meta/tasks.parquet" in found.problems[0][1].what


def test_another_version_is_recognised(tmp_path: Path) -> None:
    """For a dataset of an older format, the problem has the command that converts it."""
    root = copy_of(NAME, tmp_path)
    edit_info(root, lambda info: info.update(codebase_version="v2.1"))
    ((_, problem),) = look(root).problems

    assert problem.kind == "version"
    assert "convert_dataset_v21_to_v30" in problem.what


def test_oddities_that_work_are_noted(tmp_path: Path) -> None:
    """A black frame, a file of another length and an ignored revision have notes."""
    root = copy_of(NAME, tmp_path)
    encode(root / CLIP, count=30, value=0)
    found = look(root, revision="v3.0")
    notes = " ".join(note for _, note in found.notes)

    assert found.decodes
    assert "first frame is black" in notes
    assert "has 30 frames" in notes
    assert "'v3.0' was ignored" in notes


@pytest.mark.parametrize("name", [NAME, "images"])
def test_a_wrong_frame_size_in_info_is_noted(name: str, tmp_path: Path) -> None:
    """The loader delivers the actual size, so this is a note, not a problem."""
    root = copy_of(name, tmp_path)
    edit_info(root, lambda info: info["features"][CAMERA].update(shape=[96, 128, 3]))
    found = look(root)
    notes = " ".join(note for place, note in found.notes if place == CAMERA)

    assert found.decodes
    assert "info.json declares frames of 128x96 (width x height), but they are 64x48" in notes


@pytest.mark.parametrize(("mode", "words"), [("P", "a palette"), ("L", "has 1 channels")])
def test_images_that_the_loader_rejects_are_a_problem(
    tmp_path: Path, mode: str, words: str
) -> None:
    """An image in Parquet with another mode or shape is a problem."""
    root = copy_of("images", tmp_path)
    table = pq.read_table(root / ROWS)
    buffer = BytesIO()
    Image.new(mode, (64, 48)).save(buffer, "png")
    cells = pa.array([{"bytes": buffer.getvalue(), "path": None}] * len(table))
    pq.write_table(table.set_column(table.column_names.index(CAMERA), CAMERA, cells), root / ROWS)
    ((place, problem),) = look(root).problems

    assert place == CAMERA
    assert words in problem.what


def test_files_are_read_where_the_dataset_is(tmp_path: Path) -> None:
    """An fsspec URL works, also for data/ and videos/ alone."""
    url = f"memory:/{tmp_path}/cups"
    fsspec.filesystem("memory").put(str(FIXTURES / NAME), url, recursive=True)
    alone = copy_of(NAME, tmp_path)
    (alone / CLIP).unlink()

    assert look(url).cameras[0].file.path == f"{url}/{CLIP}"
    assert look(url).decodes
    assert look(alone, data_files_root=url).decodes
    assert look("my/name", root=url).decodes


@pytest.mark.parametrize(
    ("episode", "cameras", "words"), [(9, None, "has 2"), (0, ["left"], "are observation.images")]
)
def test_unknown_episodes_and_cameras_are_rejected(
    episode: int, cameras: list[str] | None, words: str
) -> None:
    """The error lists the existing ones."""
    with pytest.raises(SelectionError, match=words):
        diagnose_episode(
            DatasetLocation(str(FIXTURES / NAME)), episode=episode, cameras=cameras, device="cpu"
        )


def test_a_missing_decoder_is_recognised() -> None:
    """PyAV built without libdav1d, for example, knows AV1 but cannot decode it."""
    index = build_index(LocalSource(FIXTURES / NAME / CLIP))
    other = replace(index, configs=(replace(index.configs[0], decoder="libnothing"),))
    problem = explain_missing_decoder(other)

    assert explain_missing_decoder(index) is None
    assert problem is not None
    assert "no decoder for libnothing video" in problem.what


@pytest.mark.parametrize(
    ("gpu", "words"),
    [
        (Gpu(False, "580.1", True, ("A card",)), "built without CUDA"),
        (Gpu(True, None, False, ()), "no NVIDIA driver"),
        (Gpu(True, "580.1", False, ("A card",)), "NVIDIA_DRIVER_CAPABILITIES"),
        (Gpu(True, "580.1", True, ("A card",)), "None"),
    ],
)
def test_the_obstacle_to_gpu_decoding_is_named(gpu: Gpu, words: str) -> None:
    """FFmpeg, the driver and its video library are all required."""
    assert words in str(gpu.obstacle)


def test_cuda_must_work_if_requested() -> None:
    """With device "cuda", the verdict includes the GPU; with "cpu", it does not."""
    found = look(FIXTURES / NAME, device="cuda")
    decoding = found.cameras[0].gpu
    assert decoding is not None

    assert found.decodes == decoding.works
    assert look(FIXTURES / NAME).decodes


def test_the_cause_of_a_failed_import_is_found() -> None:
    """It is the linker's line, not the errors around it; a silent crash has words too."""
    trace = (
        "Traceback (most recent call last):\n"
        "OSError: libavutil.so.59: cannot open shared object file: No such file or directory\n"
        "RuntimeError: Could not load libtorchcodec."
    )

    assert explain_import(trace).startswith("OSError: libavutil.so.59")
    assert explain_import("RuntimeError: no") == "RuntimeError: no"
    assert explain_import("") == "importing it crashes the process"
