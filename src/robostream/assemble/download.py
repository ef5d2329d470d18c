# SPDX-License-Identifier: Apache-2.0
"""Bringing the files of chosen episodes of a Hub dataset to the local cache."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from robostream.meta import LeRobotDatasetMetadata, Location, as_location, pin_and_download


def localise(
    meta: LeRobotDatasetMetadata,
    episodes: npt.NDArray[np.int64],
    *,
    videos: bool,
    token: str | None,
    force: bool,
) -> Location:
    """Return where the files of the episodes can be read with random access.

    A Hub dataset is downloaded, these episodes' files only, at the pinned commit. Everything else
    (a local folder, a bucket) is read where it is.
    """
    if not meta.location.url.startswith("hf://datasets/"):
        return meta.location
    files = {meta.get_data_file_path(int(episode)).as_posix() for episode in episodes}
    if videos:
        files |= {
            meta.get_video_file_path(int(episode), key).as_posix()
            for episode in episodes
            for key in meta.video_keys
        }
    repo_id = meta.location.url.removeprefix("hf://datasets/").split("@")[0]
    folder, _ = pin_and_download(
        repo_id, meta.revision, patterns=sorted(files), token=token, force=force
    )
    return as_location(folder)
