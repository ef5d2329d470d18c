# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import io
import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from robostream.errors import FrameError, ModeError, WriteError
from robostream.meta import DepthCoding, decode_depth
from robostream.write import VideoEncoderConfig, create_writer, resume_writer
from tests.fixture_datasets import FIXTURES
from tests.write.recording import (
    CAMERA,
    FEATURES,
    FPS,
    HEIGHT,
    NAMES,
    TOP,
    WIDTH,
    check_dataset,
    decode,
    frame,
    load,
    numbered_image,
    quick_writer,
    record,
    rows,
)


@pytest.mark.parametrize("codec", ["libsvtav1", "h264"])
def test_what_is_recorded_is_read_back(tmp_path: Path, codec: str) -> None:
    """Rows, times, counters and the images of every episode, one of a single frame included."""
    root = tmp_path / codec
    lengths = [7, 1, 12]
    encoder = VideoEncoderConfig(codec=codec)
    with quick_writer(root, encoder=encoder, robot_type="arm") as writer:
        record(writer, lengths)
    table = rows(root)
    times = [np.float32(k / FPS) for n in lengths for k in range(n)]

    check_dataset(root, lengths)
    assert table["timestamp"].to_pylist() == times
    assert load(root).robot_type == "arm"
    assert groups(root) == lengths


def groups(root: Path) -> list[int]:
    file = pq.ParquetFile(root / "data/chunk-000/file-000.parquet")
    return [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]


def test_info_json_describes_the_video_as_lerobot_does(tmp_path: Path) -> None:
    """The `info` block has LeRobot's fields, in LeRobot's order, probed from the file."""
    features = {TOP: {**CAMERA, "shape": (48, 64, 3)}}
    with create_writer(tmp_path / "a", fps=20, features=features) as writer:
        writer.add_frame({TOP: np.zeros((48, 64, 3), np.uint8), "task": "wait"})
        writer.save_episode()
    mine = json.loads((tmp_path / "a/meta/info.json").read_text())
    theirs = json.loads((FIXTURES / "av1_multifile/meta/info.json").read_text())

    assert list(mine) == list(theirs)
    assert list(mine["features"][TOP]["info"].items()) == list(
        theirs["features"][TOP]["info"].items()
    )
    assert mine["splits"] == {"train": "0:1"}


def test_the_episode_table_has_lerobots_columns(tmp_path: Path) -> None:
    """Same names, same types, same order, whatever the length of the first episode."""
    with create_writer(tmp_path / "a", fps=20, features=json_features("h264_bframes")) as writer:
        entry = writer.info.features[TOP]
        frame = {name: np.zeros(e["shape"], e["dtype"]) for name, e in user(writer).items()}
        writer.add_frame({**frame, TOP: np.zeros(entry["shape"], np.uint8), "task": "wait"})
        writer.save_episode()
    path = "meta/episodes/chunk-000/file-000.parquet"
    mine, theirs = (
        pq.read_schema(tmp_path / "a" / path),
        pq.read_schema(FIXTURES / "h264_bframes" / path),
    )

    assert mine.equals(theirs)
    assert mine.names == theirs.names


def json_features(dataset: str) -> dict[str, Any]:
    return json.loads((FIXTURES / dataset / "meta/info.json").read_text())["features"]  # type: ignore[no-any-return]


def user(writer: Any) -> dict[str, Any]:
    skip = ("timestamp", "frame_index", "episode_index", "index", "task_index", TOP)
    return {name: e for name, e in writer.info.features.items() if name not in skip}


def test_tasks_are_numbered_in_the_order_they_appear(tmp_path: Path) -> None:
    """Recording the same twice numbers the tasks alike, also several in one episode."""
    texts = ["pour", "stir", "pour", "wait", "stir", "taste"]
    with quick_writer(tmp_path / "a") as writer:
        for number, task in enumerate(texts):
            writer.add_frame(frame(number, task=task))
            if number == 3:
                writer.save_episode()
        writer.save_episode()
    meta = load(tmp_path / "a")

    assert list(meta.tasks) == ["pour", "stir", "wait", "taste"]
    assert rows(tmp_path / "a")["task_index"].to_pylist() == [0, 1, 0, 2, 1, 3]
    assert meta.episodes["tasks"] == [["pour", "stir", "wait"], ["stir", "taste"]]
    assert meta.total_tasks == 4


def test_a_faulty_frame_does_not_change_the_episode(tmp_path: Path) -> None:
    """After any number of faulty frames the episode holds the good ones, in step with its video."""
    with quick_writer(tmp_path / "a") as writer:
        for number in range(5):
            with pytest.raises(FrameError):
                writer.add_frame(frame(number, speed=1))
            with pytest.raises(FrameError):
                writer.add_frame({"task": "move"})
            writer.add_frame(frame(number))
        writer.save_episode()

    check_dataset(tmp_path / "a", [5])


def test_a_task_that_cannot_be_stored_raises_at_once(tmp_path: Path) -> None:
    """A text that is not valid UTF-8 never reaches an episode, so every episode can be saved."""
    with quick_writer(tmp_path / "a") as writer:
        record(writer, [2])
        with pytest.raises(FrameError, match=r"frame 0 of episode 1.*\n.*task: want a text that"):
            writer.add_frame(frame(2, task="move \ud800"))
        record(writer, [3], first=2)

    check_dataset(tmp_path / "a", [2, 3])
    assert list(load(tmp_path / "a").tasks) == ["move"]


def test_cleared_frames_leave_nothing(tmp_path: Path) -> None:
    """After clear_episode_buffer() the next episode starts anew."""
    with quick_writer(tmp_path / "a") as writer:
        writer.clear_episode_buffer()
        for number in (90, 91):
            writer.add_frame(frame(number))
        assert writer.has_pending_frames()
        writer.clear_episode_buffer()
        assert not writer.has_pending_frames()
        record(writer, [3])

    check_dataset(tmp_path / "a", [3])


def test_an_episode_is_thrown_away_quietly(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """SVT-AV1 has nothing to complain of when it is closed in the middle of a video."""
    with quick_writer(tmp_path / "a", encoder=VideoEncoderConfig()) as writer:
        for number in range(20):
            writer.add_frame(frame(number))
        writer.clear_episode_buffer()

    assert capfd.readouterr().err == ""


def test_an_abandoned_writer_leaves_its_episodes_to_a_resume(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It gives the dataset back at once, and says nothing."""
    writer = quick_writer(tmp_path / "a")
    number = record(writer, [2])
    writer.add_frame(frame(number))
    writer.close_unfinished()
    resume_writer(tmp_path / "a").finalize()

    check_dataset(tmp_path / "a", [2])
    assert caplog.text == ""


def test_an_empty_episode_cannot_be_saved(tmp_path: Path) -> None:
    """Saving without frames is an error that people catch as ValueError, and harms nothing."""
    with quick_writer(tmp_path / "a") as writer:
        with pytest.raises(ValueError, match=r"Call add_frame\(\) first"):
            writer.save_episode()
        record(writer, [2])

    check_dataset(tmp_path / "a", [2])


def test_finalize_warns_of_unsaved_frames(tmp_path: Path) -> None:
    """Frames that were never saved are thrown away, but not in silence."""
    writer = quick_writer(tmp_path / "a")
    record(writer, [2])
    writer.add_frame(frame(2))
    with pytest.warns(UserWarning, match="1 frames were added but not saved"):
        writer.finalize()

    check_dataset(tmp_path / "a", [2])


def test_an_exception_in_the_with_block_keeps_the_saved_episodes(tmp_path: Path) -> None:
    """Leaving the block by an error discards the open episode and publishes the saved ones."""
    with pytest.raises(FrameError), quick_writer(tmp_path / "a") as writer:  # noqa: PT012
        record(writer, [4])
        writer.add_frame(frame(4))
        writer.add_frame({})

    check_dataset(tmp_path / "a", [4])


def test_a_finalized_writer_is_closed(tmp_path: Path) -> None:
    """finalize() may be called twice; recording on is an error that says what to do."""
    writer = quick_writer(tmp_path / "a")
    record(writer, [1])
    writer.finalize()
    writer.finalize()
    for call in (writer.save_episode, writer.clear_episode_buffer):
        with pytest.raises(ModeError, match="resume the dataset"):
            call()
    with pytest.raises(ModeError):
        writer.add_frame(frame(0))

    assert writer.num_episodes == 1


def test_nothing_recorded_is_an_empty_dataset(tmp_path: Path) -> None:
    """Creating and finalizing leaves info.json alone, which can be resumed."""
    quick_writer(tmp_path / "a").finalize()
    files = [p.relative_to(tmp_path / "a") for p in (tmp_path / "a").rglob("*") if p.is_file()]
    with resume_writer(tmp_path / "a") as writer:
        record(writer, [2])

    assert files == [Path("meta/info.json")]
    check_dataset(tmp_path / "a", [2])


def test_a_dataset_is_never_created_over_another(tmp_path: Path) -> None:
    """A folder with any file in it raises; an empty folder is accepted."""
    (tmp_path / "empty").mkdir()
    quick_writer(tmp_path / "empty").finalize()
    with pytest.raises(WriteError, match=r"want a new or empty folder, found meta/info\.json"):
        quick_writer(tmp_path / "empty")


def test_image_cameras_are_png_inside_parquet(tmp_path: Path) -> None:
    """Images are lossless, named by frame, and no video folder appears."""
    features = {TOP: {**CAMERA, "dtype": "image"}}
    with quick_writer(tmp_path / "a", features, use_videos=False) as writer:
        for number in range(6):
            writer.add_frame({TOP: numbered_image(number), "task": "move"})
            if number == 3:
                writer.save_episode()
        writer.save_episode()
    stored = rows(tmp_path / "a")[TOP].to_pylist()
    images = [np.asarray(Image.open(io.BytesIO(entry["bytes"]))) for entry in stored]

    assert [entry["path"] for entry in stored] == [f"frame-{k:06d}.png" for k in (0, 1, 2, 3, 0, 1)]
    assert all(np.array_equal(image, numbered_image(k)) for k, image in enumerate(images))
    assert not (tmp_path / "a/videos").exists()
    assert load(tmp_path / "a").video_path is None


@pytest.mark.parametrize(("dtype", "unit"), [("uint16", "mm"), ("float32", "m")])
def test_depth_is_stored_as_codes_or_tiff(tmp_path: Path, dtype: str, unit: str) -> None:
    """A depth video holds 12-bit codes, a depth image the array; info.json has the unit."""
    shape = {"shape": (HEIGHT, WIDTH, 1), "names": NAMES}
    features = {"video": {"dtype": "video", **shape}, "still": {"dtype": "image", **shape}}
    rng = np.random.default_rng(0)
    scale = 1 if unit == "mm" else 1000
    given = [(rng.integers(300, 3000, (HEIGHT, WIDTH)) / scale).astype(dtype) for _ in range(3)]
    with quick_writer(tmp_path / "a", features) as writer:
        for image in given:
            writer.add_frame({"video": image[..., None], "still": image[None], "task": "look"})
        writer.save_episode()
    meta, table = load(tmp_path / "a"), rows(tmp_path / "a")
    info = meta.features["video"]["info"]
    codes = [
        c for _, c in decode(tmp_path / "a" / meta.get_video_file_path(0, "video"), "gray12le")
    ]
    stored = [np.asarray(Image.open(io.BytesIO(p["bytes"]))) for p in table["still"].to_pylist()]

    assert (info["depth_unit"], info["video.codec"], info["is_depth_map"]) == (unit, "hevc", True)
    assert meta.features["still"]["info"]["depth_unit"] == unit
    assert all(np.array_equal(a, b) for a, b in zip(given, stored, strict=True))
    for image, code in zip(given, codes, strict=True):
        back = decode_depth(code, DepthCoding.from_info(info), unit)
        assert np.abs(back - image).max() <= 2 / scale  # half a step of the coding at 3 m
    assert meta.stats is not None
    assert meta.stats["video"]["max"].item() == pytest.approx(max(i.max() for i in given))


def test_language_rows_are_stored_with_their_frames(tmp_path: Path) -> None:
    """Annotations are stored; frames without any have an empty list."""
    row = {"role": "user", "content": "pour", "style": "subtask", "timestamp": 0.5, "camera": None}
    said = {**row, "tool_calls": [{"name": "say"}]}
    features = {
        "observation.state": FEATURES["observation.state"],
        "language_persistent": {"dtype": "language", "shape": (1,), "names": None},
    }
    with quick_writer(tmp_path / "a", features) as writer:
        state = {"observation.state": np.zeros(6, np.float32), "task": "pour"}
        writer.add_frame({**state, "language_persistent": [row, said]})
        writer.add_frame(state)
        writer.save_episode()
    stored = rows(tmp_path / "a")["language_persistent"].to_pylist()

    assert stored == [[{**row, "tool_calls": None}, {**row, "tool_calls": ['{"name":"say"}']}], []]
    assert load(tmp_path / "a").stats is not None


def test_add_frame_waits_for_a_slow_encoder(tmp_path: Path) -> None:
    """However far recording runs ahead, no frame is dropped: a queue of one slows it down."""
    features = {TOP: CAMERA, "observation.images.wrist": CAMERA, **FEATURES}
    with quick_writer(tmp_path / "a", features, queue_frames=1) as writer:
        for number in range(60):
            image = numbered_image(number)
            writer.add_frame(frame(number) | {"observation.images.wrist": image})
            image[:] = 0  # the writer has its own copy
        writer.save_episode()

    check_dataset(tmp_path / "a", [60])


def test_no_thread_outlives_the_writer(tmp_path: Path) -> None:
    """Encoders and the joiner end with finalize(), and encoders with each episode."""
    before = set(threading.enumerate())
    writer = quick_writer(tmp_path / "a", video_files_size_in_mb=0.001)
    record(writer, [2, 2])
    writer.add_frame(frame(4))
    writer.clear_episode_buffer()
    encoders = [t for t in threading.enumerate() if t.name.startswith("encode")]
    writer.finalize()

    assert encoders == []
    assert set(threading.enumerate()) <= before
