# SPDX-License-Identifier: Apache-2.0
"""Bringing the files of chosen episodes of a Hub dataset to the local cache."""

from __future__ import annotations

from dataclasses import replace

from robostream.assemble.opened import OpenedDataset
from robostream.meta import pin_and_download
from robostream.storage import as_location, parse_repo_url


def localise(
    dataset: OpenedDataset, *, videos: bool, token: str | None, force: bool
) -> OpenedDataset:
    """Return the dataset with its files where they can be read with random access.

    A Hub dataset is downloaded, the selected episodes' files only, at the pinned commit. Everything
    else (a local folder, a bucket) is read where it is.
    """
    meta, episodes = dataset.meta, dataset.selection.episodes
    repo = parse_repo_url(dataset.files.url)
    if repo is None:
        return dataset
    files = {meta.get_data_file_path(int(episode)).as_posix() for episode in episodes}
    if videos:
        files |= {
            meta.get_video_file_path(int(episode), key).as_posix()
            for episode in episodes
            for key in meta.video_keys
        }
    folder, _ = pin_and_download(repo[0], repo[1], patterns=sorted(files), token=token, force=force)
    return replace(dataset, files=as_location(folder))
