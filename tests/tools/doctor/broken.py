# SPDX-License-Identifier: Apache-2.0
"""Datasets with exactly one fault each, made from a sound one; tests and scripts share them."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import av
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from robostream.write import create_writer, resume_writer
from tests.fixture_datasets import edit_info
from tests.write.recording import FPS, HEIGHT, QUICK, WIDTH, numbered_image

FRAMES, EPISODES, PER_FILE = 30, 6, 3
NAMES = ["height", "width", "channels"]
TOP, WRIST, SIDE = (f"observation.images.{name}" for name in ("top", "wrist", "side"))
VIDEO = {"dtype": "video", "shape": (HEIGHT, WIDTH, 3), "names": NAMES}
JOINTS = {"dtype": "float32", "shape": (4,), "names": ["a", "b", "c", "d"]}
FEATURES = {
    TOP: VIDEO,
    WRIST: VIDEO,
    SIDE: {"dtype": "image", "shape": (32, 32, 3), "names": NAMES},
    "observation.state": JOINTS,
    "action": JOINTS,
}
TASKS = ["stack the cups", "open the drawer"]
ROWS = "data/chunk-000/file-000.parquet"
LAST_ROWS = "data/chunk-000/file-001.parquet"
TABLE = "meta/episodes/chunk-000/file-000.parquet"
LAST_TABLE = "meta/episodes/chunk-000/file-001.parquet"
CLIP = f"videos/{TOP}/chunk-000/file-000.mp4"
LAST_CLIP = f"videos/{TOP}/chunk-000/file-001.mp4"
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:0a1b\nsize 23456789\n"
QUICK_H264 = {"g": "2", "bf": "0", "preset": "ultrafast"}
TICK = Fraction(1, 20_000)
Damage = Callable[[Path], object]


@dataclass(frozen=True)
class Broken:
    """A kind of broken dataset, the lowest level that sees it, and the check that names it."""

    name: str
    level: str
    check: str
    damage: Damage
    episodes: tuple[int, ...] = ()


def make_sound(root: Path) -> Path:
    """Record the sound dataset: two files of rows and of each video, three episodes in each."""
    writer = create_writer(root, fps=FPS, features=FEATURES, encoder=QUICK)
    for first in range(0, EPISODES, PER_FILE):
        if first:
            writer = resume_writer(root, encoder=QUICK)
        for episode in range(first, first + PER_FILE):
            for frame in range(FRAMES):
                writer.add_frame(sound_frame(episode, frame))
            writer.save_episode()
        writer.finalize()
    return root


def sound_frame(episode: int, frame: int) -> dict[str, Any]:
    """A frame whose values and images differ from those of all others."""
    phases = frame / 7 + np.arange(4) + episode / 3
    image = numbered_image(episode * FRAMES + frame)
    return {
        TOP: image,
        WRIST: image[::-1].copy(),
        SIDE: image[:32, :32].copy(),
        "observation.state": np.sin(phases).astype(np.float32),
        "action": np.cos(phases).astype(np.float32),
        "task": TASKS[episode % 2],
    }


# Edits of one file -----------------------------------------------------------------------------


def edit_table(file: str, change: Callable[[dict[str, list[Any]]], object]) -> Damage:
    """Change columns of a Parquet file, as lists; its row groups and types stay."""

    def damage(root: Path) -> None:
        source = pq.ParquetFile(root / file)
        table, schema = source.read(), source.schema_arrow
        sizes = [source.metadata.row_group(g).num_rows for g in range(source.num_row_groups)]
        columns = {name: table[name].to_pylist() for name in table.column_names}
        change(columns)
        length = len(next(iter(columns.values())))
        made = pa.table([pa.array(columns[f.name], f.type) for f in schema], schema=schema)
        with pq.ParquetWriter(root / file, schema) as writer:
            at = 0
            for size in sizes if sum(sizes) == length else [length]:
                writer.write_table(made.slice(at, size), row_group_size=size)
                at += size

    return damage


def set_values(column: str, values: dict[int, Any]) -> Callable[[dict[str, list[Any]]], None]:
    """Return a change of some values of a column."""

    def change(columns: dict[str, list[Any]]) -> None:
        for row, value in values.items():
            columns[column][row] = value

    return change


def add_to(column: str, amounts: dict[int, float]) -> Callable[[dict[str, list[Any]]], None]:
    """Return a change that adds to some values of a column."""

    def change(columns: dict[str, list[Any]]) -> None:
        for row, amount in amounts.items():
            columns[column][row] += amount

    return change


def edit_stats(change: Callable[[dict[str, Any]], object]) -> Damage:
    """Change stats.json in place."""

    def damage(root: Path) -> None:
        path = root / "meta/stats.json"
        stats = json.loads(path.read_text())
        change(stats)
        path.write_text(json.dumps(stats))

    return damage


def info(change: Callable[[dict[str, Any]], object]) -> Damage:
    """Change info.json in place."""
    return lambda root: edit_info(root, change)


def replace(file: str, content: str) -> Damage:
    """Write a text in place of a file."""
    return lambda root: (root / file).write_text(content)


def truncate(file: str, share: float) -> Damage:
    """Keep the first share of a file."""

    def damage(root: Path) -> None:
        content = (root / file).read_bytes()
        (root / file).write_bytes(content[: int(len(content) * share)])

    return damage


def remove(file: str) -> Damage:
    """Delete a file."""
    return lambda root: (root / file).unlink()


def encode(
    file: str,
    images: Callable[[int], np.ndarray] = numbered_image,
    *,
    first: int = 0,
    count: int = PER_FILE * FRAMES,
    rate: Fraction = Fraction(FPS),
    delay_s: Callable[[int], float] = lambda _: 0.0,
    codec: str = "libx264",
    options: Mapping[str, str] = QUICK_H264,
    container_options: Mapping[str, str] = {},
) -> Damage:
    """Write a video of other images, length, rate, times, codec or layout in place of a file."""

    def damage(root: Path) -> None:
        with av.open(str(root / file), "w", options=dict(container_options)) as container:
            stream = container.add_stream(codec, rate=rate, options=dict(options))
            stream.height, stream.width, _ = images(first).shape
            stream.pix_fmt = "yuv420p"
            stream.codec_context.time_base = stream.time_base = TICK
            for number in range(first, first + count):
                frame = av.VideoFrame.from_ndarray(images(number), "rgb24")
                frame.pts = round(((number - first) / rate + delay_s(number)) / TICK)
                frame.time_base = TICK
                container.mux(stream.encode(frame))
            container.mux(stream.encode(None))

    return damage


def zero_bytes(file: str, count: int) -> Damage:
    """Overwrite bytes in the middle of a file with zeros."""

    def damage(root: Path) -> None:
        content = bytearray((root / file).read_bytes())
        assert count < len(content) / 2
        begin = (len(content) - count) // 2
        content[begin : begin + count] = bytes(count)
        (root / file).write_bytes(content)

    return damage


def stop_clock(root: Path) -> None:
    """Give all frames of a video the same presentation time (stts box)."""
    content = bytearray((root / CLIP).read_bytes())
    at = content.index(b"stts") + 4
    count = struct.unpack_from(">I", content, at + 4)[0]
    for entry in range(count):
        struct.pack_into(">I", content, at + 8 + 8 * entry + 4, 0)
    (root / CLIP).write_bytes(content)


def swap_codec(root: Path) -> None:
    """Give a video a codec that nobody knows."""
    (root / CLIP).write_bytes((root / CLIP).read_bytes().replace(b"avc1", b"zzz1"))


def punch_20_kb(root: Path) -> None:
    """Overwrite 20 kB in the middle of a video of the same images."""
    encode(CLIP, options=QUICK_H264 | {"crf": "4"})(root)
    zero_bytes(CLIP, 20_000)(root)


def edit_rows(change: Callable[[pa.Table], pa.Table], *, file: str = LAST_ROWS) -> Damage:
    """Write another table in place of a file of rows, a row group for each episode."""
    return lambda root: pq.write_table(
        change(pq.read_table(root / file)), root / file, row_group_size=FRAMES
    )


def retype(column: str, kind: pa.DataType, change: Callable[[Any], Any]) -> Damage:
    """Store a column as another type."""

    def changed(table: pa.Table) -> pa.Table:
        values = pa.array([change(value) for value in table[column].to_pylist()], kind)
        return table.set_column(table.schema.get_field_index(column), column, values)

    return edit_rows(changed)


def drop_column(root: Path) -> None:
    """Leave the actions out of a file of rows."""
    table = pq.read_table(root / ROWS)
    pq.write_table(table.drop_columns(["action"]), root / ROWS, row_group_size=FRAMES)


def write_texts(root: Path) -> None:
    """Store the actions as texts."""
    table = pq.read_table(root / ROWS)
    texts = pa.array([str(values) for values in table["action"].to_pylist()])
    table = table.set_column(table.schema.get_field_index("action"), "action", texts)
    pq.write_table(table, root / ROWS, row_group_size=FRAMES)


def rename_action(table: pa.Table) -> pa.Table:
    """Give the actions another name."""
    names = {"action": "actions"}
    return table.rename_columns([names.get(name, name) for name in table.column_names])


def zero_rows(root: Path) -> None:
    """Overwrite the actions of an episode with zeros."""
    column = pq.read_metadata(root / LAST_ROWS).row_group(1).column(3)
    assert column.path_in_schema.startswith("action")
    content = bytearray((root / LAST_ROWS).read_bytes())
    first = column.dictionary_page_offset or column.data_page_offset
    content[first : first + column.total_compressed_size] = bytes(column.total_compressed_size)
    (root / LAST_ROWS).write_bytes(content)


def lengthen(root: Path) -> None:
    """Give an episode more frames than fit into any memory."""
    edit_table(TABLE, add_to("length", {1: 10**12}))(root)


def fold(root: Path) -> None:
    """Put a folder in place of a video."""
    (root / CLIP).unlink()
    (root / CLIP).mkdir()


def unlink(root: Path) -> None:
    """Put a link to nothing in place of a video, as a cleared cache of the Hub leaves it."""
    (root / CLIP).unlink()
    (root / CLIP).symlink_to("nowhere")


def swap_spans(root: Path) -> None:
    """Exchange the spans of two episodes."""

    def change(columns: dict[str, list[Any]]) -> None:
        for end in ("from", "to"):
            spans_s = columns[f"{SPAN}/{end}_timestamp"]
            spans_s[0], spans_s[1] = spans_s[1], spans_s[0]

    edit_table(TABLE, change)(root)


def swap_file_numbers(root: Path) -> None:
    """Let the episode table name the other file of rows for each episode."""
    edit_table(TABLE, lambda c: c["data/file_index"].__setitem__(slice(None), [1] * PER_FILE))(root)
    edit_table(LAST_TABLE, lambda c: c["data/file_index"].__setitem__(slice(None), [0] * 3))(root)


def leave_recording(root: Path) -> None:
    """Leave a saved episode that is not in the dataset."""
    (root / ".recording/episodes/000006").mkdir(parents=True)


def stage_image(root: Path, episode: int) -> None:
    """Leave an image of an episode that a recorder put there before it was encoded."""
    folder = root / f"images/{TOP}/episode-{episode:06d}"
    folder.mkdir(parents=True)
    (folder / "frame-000000.png").write_bytes(png(4, 4))


def write_tasks(root: Path, numbers: Iterable[int], texts: Iterable[str]) -> None:
    """Write other tasks."""
    columns = {"task_index": pa.array(numbers, pa.int64()), "task": pa.array(texts, pa.string())}
    pq.write_table(pa.table(columns), root / "meta/tasks.parquet")


def spoil_image(root: Path, content: bytes) -> None:
    """Put other bytes in place of an image of the first file of rows."""
    edit_table(ROWS, set_values(SIDE, {5: {"bytes": content, "path": "x.png"}}))(root)


def png(width: int, height: int) -> bytes:
    """Return an image of a size."""
    buffer = BytesIO()
    Image.new("RGB", (width, height), (90, 120, 60)).save(buffer, "png")
    return buffer.getvalue()


def scale_action(columns: dict[str, list[Any]]) -> None:
    """Change the values of an episode without changing statistics."""
    for row in range(FRAMES):
        columns["action"][row] = [10 * value for value in columns["action"][row]]


def hold_action(columns: dict[str, list[Any]]) -> None:
    """Let a joint never move."""
    columns["action"] = [[0.5, *values[1:]] for values in columns["action"]]


def hold_everywhere(root: Path) -> None:
    """Let a joint never move in both files."""
    for file in (ROWS, LAST_ROWS):
        edit_table(file, hold_action)(root)


def black(number: int) -> np.ndarray:
    """A black image."""
    return np.zeros((HEIGHT, WIDTH, 3), np.uint8)


def still(number: int) -> np.ndarray:
    """The same image for the second episode of the file."""
    return numbered_image(FRAMES if FRAMES <= number < 2 * FRAMES else number)


def bright(number: int) -> np.ndarray:
    """A much brighter image than was recorded."""
    return (255 - numbered_image(number) // 8).astype(np.uint8)


def small(number: int) -> np.ndarray:
    """An image of another size."""
    return numbered_image(number)[: HEIGHT // 2, : WIDTH // 2].copy()


FIRST, LAST = (0, 1, 2), (3, 4, 5)
SPAN = f"videos/{TOP}"
RECORD = pa.struct([(name, pa.float32()) for name in "abcd"])

BROKEN = (
    # Seen without reading a row or a frame.
    Broken("info.json is cut off", "default", "metadata", truncate("meta/info.json", 0.5)),
    Broken("the episode table is missing", "default", "metadata", remove(TABLE)),
    Broken(
        "an episode is listed twice",
        "default",
        "metadata",
        edit_table(TABLE, set_values("episode_index", {1: 0})),
    ),
    Broken("a table is a Git LFS pointer", "default", "metadata", replace(TABLE, POINTER)),
    Broken(
        "two texts for one task number",
        "default",
        "metadata",
        lambda root: write_tasks(root, [0, 0], TASKS),
    ),
    Broken(
        "a version of the future",
        "default",
        "version",
        info(lambda info: info.update(codebase_version="v9.0")),
    ),
    Broken(
        "info.json counts other frames",
        "default",
        "counts",
        info(lambda info: info.update(total_frames=170)),
    ),
    Broken(
        "the table skips frames",
        "default",
        "counts",
        edit_table(TABLE, add_to("dataset_from_index", {2: 1})),
    ),
    Broken(
        "info.json counts more episodes",
        "default",
        "counts",
        info(lambda info: info.update(total_episodes=7)),
    ),
    Broken("a file of the table is missing", "default", "counts", remove(LAST_TABLE)),
    Broken(
        "a split has more episodes",
        "default",
        "counts",
        info(lambda info: info.update(splits={"train": "0:4", "test": "4:9", "odd": 5})),
    ),
    Broken("a recording was not finalised", "default", "unfinished", leave_recording),
    Broken(
        "a file belongs to no episode",
        "default",
        "unfinished",
        lambda root: (root / ROWS.replace("000.p", "007.p")).write_bytes(
            (root / ROWS).read_bytes()
        ),
    ),
    Broken(
        "images of an episode that was never saved",
        "default",
        "unfinished",
        lambda root: stage_image(root, EPISODES),
    ),
    Broken(
        "a task text is doubled",
        "default",
        "tasks",
        lambda root: (
            write_tasks(root, [0, 1, 2], [*TASKS, TASKS[0]])
            or edit_info(root, lambda info: info.update(total_tasks=3))
        ),
    ),
    Broken(
        "an episode has an unknown task",
        "default",
        "tasks",
        edit_table(TABLE, set_values("tasks", {1: ["fly"]})),
        (1,),
    ),
    Broken("there are no statistics", "default", "stats-missing", remove("meta/stats.json")),
    Broken(
        "a deviation is missing",
        "default",
        "stats-missing",
        edit_stats(lambda stats: stats["action"].pop("std")),
    ),
    Broken(
        "statistics of another shape",
        "default",
        "stats-wrong",
        edit_stats(lambda stats: stats["action"].update(mean=[0.0] * 3)),
    ),
    Broken(
        "quantiles out of order",
        "default",
        "stats-wrong",
        edit_stats(lambda stats: stats["action"].update(q10=[0.9] * 4, q90=[-0.9] * 4)),
    ),
    Broken(
        "statistics of fewer frames",
        "default",
        "stats-wrong",
        edit_stats(lambda stats: stats["action"].update(count=[90])),
    ),
    Broken(
        "statistics that are texts",
        "default",
        "stats-wrong",
        edit_stats(lambda stats: stats["action"].update(mean=["a"] * 4, count=[])),
    ),
    Broken(
        "statistics of a camera in another shape",
        "default",
        "stats-wrong",
        edit_stats(lambda stats: stats[TOP].update(mean=[0.5] * 3)),
    ),
    Broken(
        "statistics of a camera from 0 to 255",
        "default",
        "stats-wrong",
        edit_stats(
            lambda stats: stats[TOP].update(
                {k: (255 * np.array(v)).tolist() for k, v in stats[TOP].items() if k != "count"}
            )
        ),
    ),
    Broken(
        "a deviation of 0",
        "default",
        "stats-zero-std",
        edit_stats(lambda stats: stats["observation.state"]["std"].__setitem__(2, 0.0)),
    ),
    Broken(
        "a span is too long",
        "default",
        "span-lengths",
        edit_table(TABLE, add_to(f"{SPAN}/to_timestamp", {2: 0.5})),
        (2,),
    ),
    Broken(
        "info.json has another fps",
        "default",
        "span-lengths",
        info(lambda info: info.update(fps=30)),
        (*FIRST, *LAST),
    ),
    Broken("a file of rows is missing", "default", "files", remove(ROWS), FIRST),
    Broken("a file of rows has no footer", "default", "files", truncate(ROWS, 0.7), FIRST),
    Broken("a file of rows is empty", "default", "files", truncate(ROWS, 0), FIRST),
    Broken("an episode of a trillion frames", "default", "files", lengthen, FIRST),
    Broken("a video is missing", "default", "files", remove(LAST_CLIP), LAST),
    Broken("a video is a folder", "default", "files", fold, FIRST),
    Broken("a video is a broken link", "default", "files", unlink, FIRST),
    Broken("a video is truncated", "default", "files", truncate(CLIP, 0.6), FIRST),
    Broken("a video is an LFS pointer", "default", "files", replace(CLIP, POINTER), FIRST),
    Broken("a video of an unknown codec", "default", "files", swap_codec, FIRST),
    Broken("a column is missing", "default", "columns", drop_column, FIRST),
    Broken("actions are texts", "default", "columns", write_texts, FIRST),
    Broken("a column has another name", "default", "columns", edit_rows(rename_action), LAST),
    Broken(
        "a column that info.json lacks",
        "default",
        "columns",
        edit_rows(lambda table: table.append_column("__index_level_0__", pa.array(range(90)))),
        LAST,
    ),
    Broken(
        "actions with an entry less",
        "default",
        "columns",
        retype("action", pa.list_(pa.float32(), 3), lambda values: values[:3]),
        LAST,
    ),
    Broken(
        "actions as records",
        "default",
        "columns",
        retype("action", RECORD, lambda values: dict(zip("abcd", values, strict=True))),
        LAST,
    ),
    Broken(
        "times in nanoseconds",
        "default",
        "columns",
        retype("timestamp", pa.timestamp("ns"), lambda time_s: round(1e9 * time_s)),
        LAST,
    ),
    Broken(
        "a file of rows written twice",
        "default",
        "row-counts",
        edit_rows(lambda table: pa.concat_tables([table, table])),
        LAST,
    ),
    Broken(
        "a file of rows lost its last row",
        "default",
        "row-counts",
        edit_table(ROWS, lambda columns: [values.pop() for values in columns.values()]),
        (2,),
    ),
    Broken(
        "the table names the wrong file of rows",
        "default",
        "row-places",
        swap_file_numbers,
        (*FIRST, *LAST),
    ),
    Broken(
        "one episode in the wrong file of rows",
        "default",
        "row-places",
        edit_table(TABLE, set_values("data/file_index", {1: 1})),
        (1, 2, 3, 4),
    ),
    Broken(
        "rows numbered from 0 in each file",
        "default",
        "row-places",
        edit_table(
            LAST_ROWS, lambda c: c.update(index=[i - PER_FILE * FRAMES for i in c["index"]])
        ),
        LAST,
    ),
    Broken(
        "times of a wall clock",
        "default",
        "row-places",
        edit_table(ROWS, add_to("timestamp", dict.fromkeys(range(3 * FRAMES), 1.7e9))),
        FIRST,
    ),
    Broken(
        "times that begin late",
        "default",
        "row-places",
        edit_table(ROWS, add_to("timestamp", dict.fromkeys(range(FRAMES, 2 * FRAMES), 3.0))),
        (1,),
    ),
    Broken(
        "a gap in the times",
        "default",
        "row-places",
        edit_table(ROWS, add_to("timestamp", dict.fromkeys(range(40, 60), 0.35))),
        (1,),
    ),
    Broken(
        "a task number that is not there",
        "default",
        "task-numbers",
        edit_table(ROWS, set_values("task_index", {31: 7})),
        FIRST,
    ),
    Broken("a video lacks its last frames", "default", "frame-times", encode(CLIP, count=85), (2,)),
    Broken(
        "a video drifts",
        "default",
        "frame-times",
        encode(CLIP, rate=Fraction(20000, 1001)),
        FIRST,
    ),
    Broken(
        "a video whose frames are not even",
        "default",
        "frame-times",
        encode(CLIP, delay_s=lambda number: 0.012 * (number % 3)),
        FIRST,
    ),
    Broken(
        "a video that begins late",
        "default",
        "frame-times",
        encode(CLIP, delay_s=lambda _: 0.31),
        FIRST,
    ),
    Broken(
        "a video that skips a frame",
        "default",
        "frame-times",
        encode(CLIP, count=89, delay_s=lambda number: (number > 40) / FPS),
        (1,),
    ),
    Broken(
        "spans that begin a frame late",
        "default",
        "frame-times",
        edit_table(
            TABLE,
            lambda columns: [
                add_to(f"{SPAN}/{end}_timestamp", dict.fromkeys(range(3), 1 / FPS))(columns)
                for end in ("from", "to")
            ],
        ),
        (2,),
    ),
    Broken(
        "a span begins between two frames",
        "default",
        "frame-times",
        edit_table(TABLE, add_to(f"{SPAN}/from_timestamp", {1: 0.02})),
        (1,),
    ),
    Broken(
        "spans overlap",
        "default",
        "frame-overlaps",
        edit_table(
            TABLE,
            lambda columns: [
                add_to(f"{SPAN}/{end}_timestamp", {1: -0.5})(columns) for end in ("from", "to")
            ],
        ),
        (0, 1),
    ),
    Broken("spans are swapped", "default", "frame-overlaps", swap_spans, FIRST),
    Broken("all frames have one time", "default", "frame-overlaps", stop_clock, FIRST),
    Broken("a video has more frames", "default", "frame-leftovers", encode(CLIP, count=99), FIRST),
    Broken("a video of another size", "default", "video-sizes", encode(CLIP, small), FIRST),
    # Seen by reading all rows.
    Broken(
        "times that do not ascend",
        "rows",
        "times",
        edit_table(ROWS, set_values("timestamp", {40: 0.55, 41: 0.5})),
        (1,),
    ),
    Broken(
        "frames in another order",
        "rows",
        "rows",
        edit_table(ROWS, set_values("frame_index", {40: 11, 41: 10})),
        (1,),
    ),
    Broken(
        "an index that does not count on",
        "rows",
        "rows",
        edit_table(ROWS, set_values("index", {40: 41, 41: 40})),
        (1,),
    ),
    Broken(
        "a NaN in an action",
        "rows",
        "not-finite",
        edit_table(LAST_ROWS, set_values("action", {35: [float("nan"), 0.0, 0.0, 0.0]})),
        (4,),
    ),
    Broken(
        "an infinite state",
        "rows",
        "not-finite",
        edit_table(ROWS, set_values("observation.state", {35: [float("inf"), 0.0, 0.0, 0.0]})),
        (1,),
    ),
    Broken(
        "a null in an action",
        "rows",
        "rows",
        edit_table(ROWS, set_values("action", {35: None})),
        (1,),
    ),
    Broken("zeros in a file of rows", "rows", "rows", zero_rows, (4,)),
    Broken("a joint that never moves", "rows", "constant", hold_everywhere),
    Broken("stale statistics", "rows", "stats-stale", edit_table(ROWS, scale_action)),
    Broken(
        "rows of another task",
        "rows",
        "row-tasks",
        edit_table(ROWS, set_values("task_index", dict.fromkeys(range(FRAMES), 1))),
        (0,),
    ),
    # Seen by decoding frames.
    Broken("200 bytes of zeros in a video", "frames", "decoding", zero_bytes(CLIP, 200), (1,)),
    Broken("20 kB of zeros in a video", "frames", "decoding", punch_20_kb, (1,)),
    Broken(
        "a PNG that is damaged", "frames", "decoding", partial(spoil_image, content=b"PNG"), (0,)
    ),
    Broken(
        "an image of another size",
        "frames",
        "image-sizes",
        partial(spoil_image, content=png(20, 20)),
        (0,),
    ),
    Broken("a black camera", "frames", "black", encode(CLIP, black), FIRST),
    Broken("a frozen camera", "frames", "frozen", encode(CLIP, still), (1,)),
    Broken("other images than the statistics'", "frames", "image-stats", encode(CLIP, bright)),
)

# Unusual, but sound: nothing to warn of.
UNUSUAL = {
    "the index of a video at its front": encode(CLIP, container_options={"movflags": "faststart"}),
    "a fragmented video": encode(
        CLIP, container_options={"movflags": "frag_keyframe+empty_moov+default_base_moof"}
    ),
    "B-frames and open GOPs": encode(
        CLIP, options={"x264-params": "keyint=10:min-keyint=10:open-gop=1:bframes=3:scenecut=0"}
    ),
    "HEVC": encode(CLIP, codec="libx265", options={"g": "2", "x265-params": "log-level=none"}),
    "actions in float64": retype("action", pa.list_(pa.float64()), list),
    "times in float64": retype("timestamp", pa.float64(), float),
    "rows in one group without bounds": lambda root: pq.write_table(
        pq.read_table(root / ROWS), root / ROWS, write_statistics=False
    ),
    "files of an operating system": lambda root: [
        (root / folder / name).write_text("x")
        for folder in ("data", "videos", "data/chunk-000")
        for name in (".DS_Store", "._file-000.parquet", "._file-000.mp4")
    ],
    "staged images of episodes that were saved": lambda root: stage_image(root, 1),
    "statistics of numbers that were counted anew": edit_stats(
        lambda stats: stats["index"].update(max=[999], mean=[499.5])
    ),
    "info.json with a byte order mark": lambda root: (root / "meta/info.json").write_text(
        (root / "meta/info.json").read_text(), encoding="utf-8-sig"
    ),
    "a table with a gap in its files": lambda root: (root / LAST_TABLE).rename(
        root / "meta/episodes/chunk-000/file-005.parquet"
    ),
}
