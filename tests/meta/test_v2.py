# SPDX-License-Identifier: Apache-2.0
"""The metadata of v2.0 and v2.1, its old habits, and faults in its files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robostream import LeRobotDataset
from robostream.errors import MetadataError
from robostream.meta import DEFAULT_FEATURES, DatasetInfo, LeRobotDatasetMetadata
from robostream.meta import v2 as v2_module
from robostream.meta.v2 import load_v2_episodes, read_json_lines
from robostream.storage import FileOpener, as_location
from tests.fixture_datasets import FIXTURES, copy_of, edit_info, v20_of

VIDEOS, CONVERTED = FIXTURES / "v21_videos", FIXTURES / "v21_videos_as_v30"
EPISODES, TASKS = "meta/episodes.jsonl", "meta/tasks.jsonl"
STATS = "meta/episodes_stats.jsonl"
VIDEO_PATH = "{video_key}/{episode_chunk}/{episode_index:3}.mp4"

Lines = list[dict[str, Any]]


def load(root: Path) -> LeRobotDatasetMetadata:
    return LeRobotDatasetMetadata("some/name", root=root)


def edit_lines(root: Path, file: str, change: Callable[[Lines], Lines]) -> None:
    lines = [json.loads(line) for line in (root / file).read_text().splitlines()]
    (root / file).write_text("".join(json.dumps(line) + "\n" for line in change(lines)))


def without_frames(line: dict[str, Any]) -> dict[str, Any]:
    """Return a line of statistics that says it summarises no frame."""
    return line | {"stats": {key: entry | {"count": [0]} for key, entry in line["stats"].items()}}


def test_the_table_is_that_of_the_conversion() -> None:
    """Lengths, frame ranges and tasks equal those that LeRobot's converter writes."""
    old, new = load(VIDEOS), load(CONVERTED)

    for column in ("episode_index", "length", "dataset_from_index", "dataset_to_index"):
        np.testing.assert_array_equal(old.episodes[column], new.episodes[column])
    assert old.episodes["tasks"] == new.episodes["tasks"]
    assert old.tasks.index == new.tasks.index
    assert (old.total_frames, old.fps) == (new.total_frames, new.fps)


def test_statistics_are_aggregated_as_lerobot_does() -> None:
    """Those of the episodes together are the ones LeRobot's converter stores."""
    old, new = load(VIDEOS).stats, load(CONVERTED).stats
    assert old is not None
    assert new is not None

    assert old.keys() == new.keys()
    for key, entry in new.items():
        for name in ("min", "max", "mean", "std", "count"):
            np.testing.assert_allclose(old[key][name], entry[name], rtol=1e-12, atol=1e-15)
            assert old[key][name].shape == entry[name].shape


def test_statistics_of_many_episodes_are_aggregated_in_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two episodes at a time give the same as all at once."""
    whole = load(VIDEOS).stats
    monkeypatch.setattr(v2_module, "_STATS_AT_A_TIME", 2)
    parts = load(VIDEOS).stats
    assert whole is not None
    assert parts is not None

    for key, entry in whole.items():
        for name, value in entry.items():
            np.testing.assert_allclose(parts[key][name], value, rtol=1e-12, atol=1e-15)


def test_a_v20_dataset_has_the_statistics_of_its_file(tmp_path: Path) -> None:
    """stats.json is used as it is; everything else is as in v2.1."""
    old, new = load(v20_of("v21_videos", tmp_path)), load(VIDEOS)
    assert old.stats is not None
    assert new.stats is not None

    assert old.info.codebase_version == "v2.0"
    np.testing.assert_array_equal(old.stats["action"]["mean"], new.stats["action"]["mean"])
    assert old.episodes.digest() == new.episodes.digest()


@pytest.mark.parametrize("chunks_size", [1, 2, 3, 1000])
def test_every_episode_has_files_of_its_own(tmp_path: Path, chunks_size: int) -> None:
    """The templates name them by episode_chunk, for any number of episodes in a chunk."""
    root = copy_of("v21_videos", tmp_path)
    edit_info(root, lambda info: info.update(chunks_size=chunks_size))
    meta = load(root)

    for episode in range(5):
        chunk = f"chunk-{episode // chunks_size:03d}"
        name = f"episode_{episode:06d}"
        assert meta.get_data_file_path(episode) == Path(f"data/{chunk}/{name}.parquet")
        key = "observation.images.wrist"
        assert meta.get_video_file_path(episode, key) == Path(f"videos/{chunk}/{key}/{name}.mp4")


@given(lengths=st.lists(st.integers(1, 400), min_size=1, max_size=40), seed=st.integers(0, 2**32))
def test_lines_in_any_order_are_the_same_table(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], seed: int
) -> None:
    """Frame ranges follow from the lengths in the order of the episodes, not of the lines."""
    folder = tmp_path_factory.mktemp("dataset")
    (folder / "meta").mkdir()
    lines = [
        json.dumps({"episode_index": number, "tasks": [f"task {number % 3}"], "length": length})
        for number, length in enumerate(lengths)
    ]
    order = np.random.default_rng(seed).permutation(len(lines))
    (folder / EPISODES).write_text("\n".join(lines[place] for place in order))
    info = DatasetInfo(fps=10, features=DEFAULT_FEATURES, codebase_version="v2.1")
    table = load_v2_episodes(FileOpener(as_location(folder)), info)

    assert table["length"].tolist() == lengths
    assert table["dataset_to_index"].tolist() == np.cumsum(lengths).tolist()
    assert table["tasks"] == [[f"task {number % 3}"] for number in range(len(lengths))]


@given(texts=st.lists(st.text(max_size=30), max_size=30), piece=st.integers(1, 50))
def test_a_file_is_read_in_pieces_of_any_size(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], piece: int
) -> None:
    """Lines that cross a border between pieces arrive whole, with their numbers."""
    folder = tmp_path_factory.mktemp("dataset")
    content = "".join(json.dumps({"text": text}, ensure_ascii=False) + "\n\n" for text in texts)
    (folder / "lines.jsonl").write_bytes(content.encode(errors="surrogatepass"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(v2_module, "_PIECE_BYTES", piece)
        found = list(read_json_lines(FileOpener(as_location(folder)), "lines.jsonl"))

    assert [line.values["text"] for line in found] == texts
    assert [line.where.rpartition(" ")[2] for line in found] == [
        str(2 * number + 1) for number in range(len(texts))
    ]


def test_a_whole_number_of_frames_per_second_may_be_a_float(tmp_path: Path) -> None:
    """20.0 is 20, as LeRobot's converter makes it; fractions stay."""
    root = copy_of("v21_videos", tmp_path)
    edit_info(root, lambda info: info.update(fps=20.0))

    assert load(root).fingerprint == load(VIDEOS).fingerprint
    edit_info(root, lambda info: info.update(fps=29.97))
    assert load(root).fps == 29.97


def test_without_tasks_jsonl_tasks_are_those_of_the_episodes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """They are numbered as they first appear, which the log says."""
    root = copy_of("v21_videos", tmp_path)
    (root / TASKS).unlink()

    assert load(root).tasks.index == ["stack the cups", "open the drawer"]
    assert "numbered as they first appear in meta/episodes.jsonl" in caplog.text


@pytest.mark.parametrize("version", ["v2.0", "v2.1"])
def test_missing_statistics_are_none_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, version: str
) -> None:
    """The dataset can be read; the warning names the file, once it is needed."""
    root = copy_of("v21_videos", tmp_path)
    (root / STATS).unlink()
    edit_info(root, lambda info: info.update(codebase_version=version))
    meta = load(root)
    assert caplog.text == ""

    assert meta.stats is None
    assert "no meta/episodes_stats.jsonl" in caplog.text


def test_statistics_of_the_other_version_are_read(tmp_path: Path) -> None:
    """A v2.0 dataset with those of v2.1 alone, and the reverse."""
    aggregated = load(VIDEOS).stats
    assert aggregated is not None
    late, early = copy_of("v21_videos", tmp_path), v20_of("v21_videos", tmp_path / "early")
    edit_info(late, lambda info: info.update(codebase_version="v2.0"))
    edit_info(early, lambda info: info.update(codebase_version="v2.1"))

    for root in (late, early):
        stats = load(root).stats
        assert stats is not None
        np.testing.assert_array_equal(stats["action"]["mean"], aggregated["action"]["mean"])


def test_episodes_without_statistics_are_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Those of the others are aggregated, as LeRobot does, with a warning."""
    root = copy_of("v21_videos", tmp_path)
    edit_lines(root, STATS, lambda lines: lines[:3])
    stats = load(root).stats

    assert stats is not None
    assert stats["action"]["count"].tolist() == [37 + 24 + 51]
    assert "2 of the 5 episodes have no statistics; meta.stats are those of the" in caplog.text


def test_episodes_without_tasks_can_be_read(tmp_path: Path) -> None:
    """Their texts are those of task_index in the rows."""
    root = copy_of("v21_videos", tmp_path)
    edit_lines(root, EPISODES, lambda lines: [line | {"tasks": []} for line in lines])

    assert load(root).episodes["tasks"] == [[]] * 5
    assert LeRobotDataset("some/name", root=root, camera_keys=[])[40]["task"] == "open the drawer"


def test_a_version_may_be_a_number(tmp_path: Path) -> None:
    """2.1 is v2.1, as "2.1" is."""
    root = copy_of("v21_videos", tmp_path)
    edit_info(root, lambda info: info.update(codebase_version=2.1))

    assert load(root).info.is_v2


def test_a_part_of_a_chunk_is_an_error(tmp_path: Path) -> None:
    """The chunk of an episode follows from chunks_size."""
    root = copy_of("v21_videos", tmp_path)
    edit_info(root, lambda info: info.update(chunks_size=2.5))

    with pytest.raises(MetadataError, match=r"chunks_size must be a whole number .* got 2\.5"):
        load(root)


def test_templates_may_name_plain_numbers(tmp_path: Path) -> None:
    """With any width, with or without the letter d."""
    root = copy_of("v21_videos", tmp_path)
    paths = {"data_path": "rows/{episode_index:d}.parquet", "video_path": VIDEO_PATH}
    edit_info(root, lambda info: info.update(paths))
    meta = load(root)

    assert meta.get_data_file_path(3) == Path("rows/3.parquet")
    assert meta.get_video_file_path(3, "observation.images.top").name == "  3.mp4"


def test_the_fingerprint_says_the_version(tmp_path: Path) -> None:
    """It differs from that of the conversion, and v2.0 from v2.1."""
    names = [load(root).fingerprint for root in (v20_of("v21_videos", tmp_path), VIDEOS, CONVERTED)]

    assert [name.partition("-")[0] for name in names[:2]] == ["v2.0", "v2.1"]
    assert "-" not in names[2]


def test_fields_of_its_own_are_known(caplog: pytest.LogCaptureFixture) -> None:
    """total_chunks and total_videos cause no warning; sizes of v3.0's files are not invented."""
    fields = load(VIDEOS).info.to_dict()

    assert caplog.text == ""
    assert "data_files_size_in_mb" not in fields


def test_chunk_settings_stay() -> None:
    """They are those of a recorder, which does not write v2.x."""
    with pytest.raises(MetadataError, match=r"of v2\.1 cannot be recorded into.*Convert it"):
        load(VIDEOS).update_chunk_settings(chunks_size=5)


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        (EPISODES, lambda lines: lines[:2], "meta/episodes.jsonl holds 2 and 61.*in info.json"),
        (EPISODES, lambda lines: lines[:2] + lines[3:], "found none for episode 2"),
        (EPISODES, lambda lines: [*lines, lines[3]], "found two for episode 3"),
        (EPISODES, lambda lines: [1], "line 1: want a JSON object, found 1"),
        (EPISODES, lambda lines: [{"length": 1}], "from 0 to .* as episode_index, found None"),
        (EPISODES, lambda lines: [lines[0] | {"length": 0}], "as length, found 0"),
        (EPISODES, lambda lines: [lines[0] | {"length": 3.5}], "as length, found 3.5"),
        (EPISODES, lambda lines: [lines[0] | {"length": 1 << 40}], "as length, found 1099"),
        (EPISODES, lambda lines: [lines[0] | {"tasks": [3]}], "want a text as tasks, found 3"),
        (EPISODES, lambda lines: [], "meta/episodes.jsonl holds 0 and 0.*in info.json"),
        (TASKS, lambda lines: [lines[1]], "task_index must count from 0 to 0"),
        (TASKS, lambda lines: [{"task_index": 0}], "line 1: want a text as task, found None"),
        (STATS, lambda lines: [{"episode_index": 0}], "line 1: want the statistics of each"),
        (
            STATS,
            lambda lines: [{"episode_index": 0, "stats": {"action": {"mean": [0.0]}}}],
            "want min, max, mean, std and count of each feature.*statistics are optional",
        ),
        (STATS, lambda lines: [*lines, lines[3]], "line 6: want one .* a second for episode 3"),
        (STATS, lambda lines: [lines[0] | {"episode_index": 5}], "the 5 episodes, found one for"),
        (STATS, lambda lines: [without_frames(line) for line in lines], "every count is 0"),
    ],
)
def test_faults_are_named(
    tmp_path: Path, file: str, change: Callable[[Lines], Any], message: str
) -> None:
    """Each fault of a line is an error with the file, the line and the cure."""
    root = copy_of("v21_videos", tmp_path)
    edit_lines(root, file, change)

    with pytest.raises(MetadataError, match=message):
        assert load(root).stats is not None


@pytest.mark.parametrize("file", [EPISODES, TASKS, STATS])
@pytest.mark.parametrize("text", ["{", "[" * 100_000, '{"a": 1} {"b": 2}', "\x00"])
def test_lines_that_are_no_json(tmp_path: Path, file: str, text: str) -> None:
    """A cut or damaged file names the line."""
    root = copy_of("v21_videos", tmp_path)
    (root / file).write_text((root / file).read_text().splitlines()[0] + "\n" + text)

    with pytest.raises(MetadataError, match=r"jsonl, line 2: not valid JSON"):
        assert load(root).stats is not None


def test_lines_of_excessive_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line is limited before it is parsed, and a file before it is read."""
    root = copy_of("v21_videos", tmp_path)
    monkeypatch.setenv("ROBOSTREAM_DECODE_LIMIT", "100")
    with pytest.raises(MetadataError, match=r"set ROBOSTREAM_DECODE_LIMIT to more"):
        load(root)
    monkeypatch.delenv("ROBOSTREAM_DECODE_LIMIT")
    monkeypatch.setenv("ROBOSTREAM_JSON_LIMIT", "5000")
    monkeypatch.setattr(v2_module, "_PIECE_BYTES", 2600)
    (root / STATS).write_text("x" * 20_000)
    with pytest.raises(MetadataError, match=r"line 1: want at most .* in a line"):
        assert load(root).stats is not None


def test_a_missing_table_says_what_to_copy(tmp_path: Path) -> None:
    """Without episodes.jsonl nothing can be read."""
    root = copy_of("v21_videos", tmp_path)
    (root / EPISODES).unlink()

    with pytest.raises(MetadataError, match=r"episodes\.jsonl: not found, though info\.json count"):
        load(root)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("data/chunk-{episode_chunk:03d}.parquet", "all of them are the same file"),
        ("data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet", r"want a text with the fie"),
        ("../{episode_index}.parquet", "below the dataset's root"),
    ],
)
def test_templates_that_lead_astray(tmp_path: Path, path: str, message: str) -> None:
    """A template without the episode would give all of them one file."""
    root = copy_of("v21_videos", tmp_path)
    edit_info(root, lambda info: info.update(data_path=path))

    with pytest.raises(MetadataError, match=message):
        load(root)


def test_a_dataset_without_episodes_says_so(tmp_path: Path) -> None:
    """An empty v2.1 dataset has metadata, but nothing to read."""
    root = copy_of("v21_images", tmp_path)
    for file in (EPISODES, TASKS, STATS):
        (root / file).unlink()
    edit_info(root, lambda i: i.update(total_episodes=0, total_frames=0, total_tasks=0))
    meta = load(root)

    assert len(meta.episodes) == len(meta.tasks) == 0
    with pytest.raises(MetadataError, match="no episodes"):
        meta.ensure_readable()
