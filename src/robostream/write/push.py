# SPDX-License-Identifier: Apache-2.0
"""Uploads a finished dataset to the Hugging Face Hub, with its card."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from robostream import arguments
from robostream.errors import MissingFileError, ModeError, SelectionError
from robostream.meta import LeRobotDatasetMetadata
from robostream.storage import upload

_README = "README.md"
_DEFAULT_LICENSE = "apache-2.0"
# Frames that wait to be encoded, which only LeRobot's recorder leaves behind.
_STAGED_IMAGES, _VIDEOS = "images/", "videos/"


def push_dataset(
    meta: LeRobotDatasetMetadata,
    *,
    branch: str | None,
    tags: Sequence[str] | None,
    license: str | None,
    tag_version: bool,
    push_videos: bool,
    private: bool | None,
    allow_patterns: list[str] | str | None,
    token: str | None,
) -> None:
    """Upload a local dataset; `LeRobotDataset.push_to_hub` has the arguments.

    A README.md in the dataset's folder is uploaded as it is, else a card is written for the Hub.
    """
    root = meta.root
    if not isinstance(root, Path):
        raise ModeError(f"{root}: only a dataset in a local folder can be pushed; copy it first")
    has_card = (root / _README).exists()
    if has_card and (tags is not None or license != _DEFAULT_LICENSE):
        raise SelectionError(
            f"{root / _README} is pushed as it is, so tags and license have no effect; write them "
            "there, or remove the file to have a card made"
        )
    if allow_patterns is None:
        _check_complete(meta, root, with_videos=push_videos)
    upload(
        meta.repo_id,
        root,
        branch=branch,
        private=private,
        allow_patterns=allow_patterns,
        ignore_patterns=[_STAGED_IMAGES, *([] if push_videos else [_VIDEOS])],
        readme=None if has_card else dataset_card(meta, tags=tags, license=license),
        tag=meta.info.codebase_version if tag_version else None,
        token=token,
    )


def dataset_card(
    meta: LeRobotDatasetMetadata, *, tags: Sequence[str] | None, license: str | None
) -> str:
    """Return the README.md of a dataset on the Hub.

    Its first lines are those that LeRobot writes: by them the Hub lists and shows LeRobot datasets.
    """
    from huggingface_hub import DatasetCardData

    data = DatasetCardData(
        license=license,
        tags=["LeRobot", *arguments.names(tags or [], "tags")],
        task_categories=["robotics"],
        configs=[{"config_name": "default", "data_files": "data/*/*.parquet"}],
    )
    return f"""---
{data.to_yaml()}
---

# {meta.repo_id.rsplit("/", 1)[-1]}

A [LeRobot](https://github.com/huggingface/lerobot) dataset, format {meta.info.codebase_version}.

| | |
|---|---|
| robot | {meta.robot_type or "not named"} |
| episodes | {meta.total_episodes} |
| frames | {meta.total_frames}, {meta.fps} per second |
| tasks | {meta.total_tasks} |
| cameras | {", ".join(f"`{key}`" for key in meta.camera_keys) or "none"} |

## Structure

[meta/info.json](meta/info.json):

```json
{meta.info.to_json()}
```
"""


def _check_complete(meta: LeRobotDatasetMetadata, root: Path, *, with_videos: bool) -> None:
    """Raise if a file of the dataset is not in its folder, as after a partial download."""
    episodes = range(meta.total_episodes)
    files = {meta.get_data_file_path(episode) for episode in episodes}
    for key in meta.video_keys if with_videos else []:
        files |= {meta.get_video_file_path(episode, key) for episode in episodes}
    missing = sorted(str(file) for file in files if not (root / file).exists())
    if missing:
        raise MissingFileError(
            f"{root}: {len(missing)} of the dataset's {len(files)} files are not here, the first "
            f"is {missing[0]}. Download all of it before pushing it, or choose files with "
            "allow_patterns."
        )
