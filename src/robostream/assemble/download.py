# SPDX-License-Identifier: Apache-2.0
"""The files of chosen episodes, and bringing those of a Hub dataset to its local cache."""

from __future__ import annotations

from dataclasses import replace

from robostream.assemble.opened import OpenedDataset
from robostream.meta import pin_and_download
from robostream.storage import as_location, parse_repo_url


def download_from_hub(
    dataset: OpenedDataset, *, videos: bool, token: str | None, force: bool
) -> OpenedDataset:
    """Return the dataset with its files where they can be read with random access.

    A Hub dataset is downloaded, the selected episodes' files only, at the pinned commit. Everything
    else (a local folder, a bucket) is read where it is.
    """
    repo = parse_repo_url(dataset.files.url)
    if repo is None:
        return dataset
    files = selected_files(dataset, videos=videos)
    folder, _ = pin_and_download(repo[0], repo[1], patterns=sorted(files), token=token, force=force)
    return replace(dataset, files=as_location(folder))


def selected_files(dataset: OpenedDataset, *, videos: bool) -> list[str]:
    """Return the files of the selected episodes, each once, in the order episodes need them."""
    meta = dataset.meta
    keys = meta.video_keys if videos else []
    files: dict[str, None] = {}
    for episode in map(int, dataset.selection.episodes):
        files[meta.get_data_file_path(episode).as_posix()] = None
        for key in keys:
            files[meta.get_video_file_path(episode, key).as_posix()] = None
    return list(files)
