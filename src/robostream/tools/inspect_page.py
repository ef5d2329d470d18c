# SPDX-License-Identifier: Apache-2.0
"""The page of `robostream inspect`: one HTML file with its images and charts in it."""

from __future__ import annotations

import base64
import shlex
from collections import Counter
from collections.abc import Sequence
from html import escape
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from robostream.assemble import CameraReader, OpenedDataset
from robostream.meta import DEFAULT_FEATURES, LeRobotDatasetMetadata, dimension_names, image_shape
from robostream.storage import parse_repo_url
from robostream.tools import page, views
from robostream.tools.views import EpisodeView

_MOST_LINES = 32
_QUALITY = 82
_EPISODES = 12
_MOST_TASKS = 40
_OPEN_STATS = 2
_UNITS = (("hours", 3600), ("minutes", 60), ("seconds", 1))
_SHOWN_STATS = ("min", "q01", "q50", "q99", "max", "mean", "std")


def inspect_html(dataset: OpenedDataset, view: EpisodeView) -> str:
    """Return the page of a dataset and one of its episodes."""
    meta, title = dataset.meta, views.name_of(dataset.meta)
    headline = f"<h1>{escape(title)}</h1><p>{escape(_about(meta))}</p>"
    episode = [_episode(meta, view), _overview(dataset), _lengths(meta, view)]
    tables = [_tasks(meta), _statistics(meta), _viewer(meta, view.episode)]
    content = "\n".join(filter(None, [headline, _tiles(meta), *episode, *tables]))
    style = page.read_style("robostream.tools", "inspect.css") + _lights(len(view.frames))
    return page.page_html(title, content, style)


def _lights(num_parts: int) -> str:
    """Return the style by which an image lights up its time in all charts, and the reverse."""
    lit = [f"section:has(.t{part}:hover)" for part in range(num_parts)]
    bands = ", ".join(f"{hovered} .bands .t{part}" for part, hovered in enumerate(lit))
    images = ", ".join(f"{hovered} figure.t{part} img" for part, hovered in enumerate(lit))
    return f"{bands} {{ background: var(--lit); }}\n{images} {{ outline: 2px solid var(--c0); }}\n"


def _about(meta: LeRobotDatasetMetadata) -> str:
    sizes = {key: image_shape(meta.features[key]) for key in meta.camera_keys}
    cameras = [f"{key} {width}x{height}" for key, (_, height, width) in sizes.items()]
    robot = f"Recorded on {meta.robot_type}. " if meta.robot_type else ""
    where = f"{meta.url_root}{f' at {meta.revision}' if meta.revision else ''}"
    return f"{robot}{_count(len(cameras), 'camera')}: {', '.join(cameras) or 'none'}. {where}"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _tiles(meta: LeRobotDatasetMetadata) -> str:
    seconds = meta.total_frames / meta.fps
    unit, size = next(pair for pair in _UNITS if seconds >= 2 * pair[1] or pair[1] == 1)
    an_episode = f"{seconds / meta.total_episodes:.1f} s an episode"
    tiles = (
        ("episodes", f"{meta.total_episodes:,}", "", _count(meta.total_tasks, "task")),
        ("frames", f"{meta.total_frames:,}", "", f"at {meta.fps} per second"),
        ("duration", f"{seconds / size:.1f}", unit, an_episode),
        ("cameras", str(len(meta.camera_keys)), "", meta.info.codebase_version),
    )
    return f'<div class="tiles">{"".join(page.tile_html(*tile) for tile in tiles)}</div>'


def _episode(meta: LeRobotDatasetMetadata, view: EpisodeView) -> str:
    """Return the strips of all cameras and the curves below them, on one axis of time."""
    seconds = view.length / meta.fps
    parts = [f"<h3>{escape(key)}</h3>{_strip(meta, view, key)}" for key in view.strips]
    digits = 1 if seconds > 1 else 2
    axis = page.axis_html([f"{seconds * part / 4:.{digits}f} s" for part in range(5)])
    for key, values in view.curves.items():
        count = values.shape[1]
        names = dimension_names(meta.features[key], count)[:_MOST_LINES]
        more = f", the first {_MOST_LINES} of {count}" if count > _MOST_LINES else ""
        shown = values[:, :_MOST_LINES]
        chart = page.curves_html(shown, names, num_parts=len(view.frames), axis=axis)
        parts.append(f"<h3>{escape(key)}{more}</h3>{chart}")
    tasks = ", ".join(view.tasks).rstrip(". ") or "No task"
    lead = f"{tasks}. {_count(view.length, 'frame')}, {seconds:.{digits}f} s."
    if view.strips:
        lead += " Images and curves share one axis of time: an image is the middle of the stretch"
        lead += " below it."
    return page.section_html(f"Episode {view.episode}", lead, "".join(parts))


def _strip(meta: LeRobotDatasetMetadata, view: EpisodeView, key: str) -> str:
    images = view.strips[key]
    if isinstance(images, str):
        return f'<p class="bad">{escape(images)}</p>'
    figures = "".join(
        _figure(image, f"frame {frame} of {key}", f"{frame / meta.fps:.1f} s", f"t{number}")
        for number, (frame, image) in enumerate(zip(view.frames, images, strict=True))
    )
    kind = "strip many" if len(images) == views.NUM_FRAMES else "strip"
    return f'<div class="{kind}" style="--parts: {len(images)}">{figures}</div>'


def _figure(image: Image.Image, alt: str, caption: str, kind: str = "") -> str:
    opening = f'<figure class="{kind}">' if kind else "<figure>"
    jpeg = BytesIO()
    image.save(jpeg, "JPEG", quality=_QUALITY)
    url = f"data:image/jpeg;base64,{base64.b64encode(jpeg.getvalue()).decode()}"
    shown = f'<img alt="{escape(alt)}" src="{url}">'
    return f"{opening}{shown}<figcaption>{escape(caption)}</figcaption></figure>"


def _overview(dataset: OpenedDataset) -> str:
    """Return the middle frames of some episodes. Decodes only these, of one camera."""
    lengths, figures = dataset.meta.episodes["length"], []
    camera = next(iter(dataset.spec.cameras), "")
    with CameraReader(dataset) as reader:
        for episode in views.spread_frames(len(lengths), _EPISODES) if camera else ():
            frames = views.spread_frames(int(lengths[episode]), 1)
            images = views.read_strip(reader, camera, episode, frames)
            if not isinstance(images, str):
                figures.append(_figure(images[0], f"episode {episode}", f"episode {episode}"))
    if not figures:
        return ""
    lead = f"The middle frame of {_count(len(figures), 'episode')}, evenly spaced: {camera}."
    sheet = f'<div class="sheet">{"".join(figures)}</div>'
    return page.section_html("Across the dataset", lead, sheet)


def _lengths(meta: LeRobotDatasetMetadata, view: EpisodeView) -> str:
    lengths = meta.episodes["length"]
    if lengths.min() == lengths.max():
        several = f"All {len(lengths):,} episodes have"
        which = several if len(lengths) > 1 else "The only episode has"
        return page.section_html("Lengths", f"{which} {_count(view.length, 'frame')}.", "")
    chart = page.histogram_html(lengths, marked=view.length)
    lead = f"Frames of an episode, {np.median(lengths):,.0f} in the median; the bar of episode"
    lead += f" {view.episode} is orange."
    return page.section_html("Lengths", lead, chart)


def _tasks(meta: LeRobotDatasetMetadata) -> str:
    if not len(meta.tasks):
        return ""
    counts: Counter[str] = Counter()
    if "tasks" in meta.episodes.columns:
        counts.update(str(task) for tasks in meta.episodes["tasks"] for task in tasks or ())
    order = sorted(meta.tasks.index, key=lambda task: -counts[task])
    most = max(counts.values(), default=0) or 1
    bar = '<i class="share" style="width: {:.1f}%"></i>'
    rows = [
        [escape(task), f"{counts[task]:,}", bar.format(100 * (counts[task] / most))]
        for task in order[:_MOST_TASKS]
    ]
    hidden = len(order) - len(rows)
    more = f" {hidden:,} more are not shown." if hidden else ""
    lead = f"Episodes with each of {_count(len(order), 'task')}.{more}"
    table = page.table_html(("task", "episodes", ""), rows, names=("task", ""))
    return page.section_html("Tasks", lead, table)


def _statistics(meta: LeRobotDatasetMetadata) -> str:
    stats = meta.stats or {}
    own = (key for key in meta.features if key in stats and key not in DEFAULT_FEATURES)
    if not (shown := sorted(own, key=views.importance)):
        lead = "The dataset records none. robostream stats computes them from the rows."
        return page.section_html("Statistics", lead, "")
    parts = [
        f"<details{' open' if number < _OPEN_STATS else ''}><summary>{escape(key)}</summary>"
        f"{_feature_table(meta, key)}</details>"
        for number, key in enumerate(shown)
    ]
    lead = (
        "As recorded in meta/stats.json. The line is min to max, the box q10 to q90, the mark the "
        "mean, on one scale for a feature. robostream stats computes exact ones."
    )
    return page.section_html("Statistics", lead, "".join(parts))


def _feature_table(meta: LeRobotDatasetMetadata, key: str) -> str:
    assert meta.stats is not None
    entry = {
        name: np.ravel(value).astype(np.float64)
        for name, value in meta.stats[key].items()
        if name != "count" and np.asarray(value).dtype.kind in "biuf"
    }
    names = [name for name in _SHOWN_STATS if name in entry]
    size = min((len(value) for value in entry.values()), default=0)
    rows = []
    for at, name in enumerate(dimension_names(meta.features[key], size)):
        numbers = [page.format_number(entry[stat][at]) for stat in names]
        rows.append([escape(name), *numbers, _range(entry, at)])
    return page.table_html(("", *names, "range"), rows, names=("",))


def _range(entry: dict[str, npt.NDArray[Any]], at: int) -> str:
    if not {"min", "max", "mean"} <= set(entry):
        return ""
    low, high = float(entry["min"].min()), float(entry["max"].max())
    values = {name: float(value[at]) for name, value in entry.items()}
    is_finite = np.isfinite([low, high, values["mean"]]).all()
    return page.range_html(values, low, high) if is_finite else ""


def _viewer(meta: LeRobotDatasetMetadata, episode: int) -> str:
    command = viewer_command(meta, episode)
    if command is None:
        return ""
    lead = "LeRobot plays all frames of an episode (pip install 'lerobot[dataset_viz]'):"
    text = f"<pre><code>{escape(shlex.join(command))}</code></pre>"
    return page.section_html("In LeRobot's own viewer", lead, text)


def viewer_command(meta: LeRobotDatasetMetadata, episode: int) -> Sequence[str] | None:
    """Return the command of LeRobot's viewer; None for what it cannot open: v2.x, and URLs."""
    if meta.info.is_v2:
        return None
    options = ["--episode-index", str(episode)]
    if repo := parse_repo_url(meta.url_root):
        return ["lerobot-dataset-viz", "--repo-id", repo[0], *options]
    if not isinstance(meta.root, Path):
        return None
    root = str(meta.root.absolute())
    return ["lerobot-dataset-viz", "--repo-id", f"local/{meta.root.name}", "--root", root, *options]
