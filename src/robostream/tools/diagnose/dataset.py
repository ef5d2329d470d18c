# SPDX-License-Identifier: Apache-2.0
"""Whether a dataset can be opened, where its files lie, and whether an episode's rows are there."""

from __future__ import annotations

from dataclasses import dataclass, replace

from robostream.assemble import DatasetLocation, OpenedDataset, RowReader
from robostream.errors import (
    CompatibilityError,
    DataFileError,
    MissingExtraError,
    MissingRevisionError,
    StorageError,
)
from robostream.storage import as_location, list_files, list_refs
from robostream.tools.diagnose.file import FileCheck, Problem, check_file, unreadable


@dataclass(frozen=True, slots=True)
class DatasetCheck:
    """The dataset and the episode that were found.

    Attributes:
        meta_url: Where meta/ was read.
        url: Where data/ and videos/ are read.
        revision: The commit that was read, for a dataset on the Hub.
        codebase_version: The format's version.
        fps: Frames per second.
        total_episodes: How many episodes there are.
        total_frames: How many frames they have.
        episode: The one looked at.
        num_frames: Its frames.
        table: The Parquet file of its rows.
    """

    meta_url: str
    url: str
    revision: str | None
    codebase_version: str
    fps: float
    total_episodes: int
    total_frames: int
    episode: int
    num_frames: int
    table: FileCheck


def explain_opening(address: DatasetLocation, error: Exception) -> Problem:
    """Return the problem of a dataset that cannot be opened."""
    placeholder = _placeholder(address)
    if placeholder is not None:
        return placeholder
    if isinstance(error.__cause__, MissingRevisionError):
        return Problem("revision", str(error), _revisions(address.repo_id))
    if isinstance(error, MissingExtraError):
        return Problem("missing_package", str(error), "")
    kind = "version" if isinstance(error, CompatibilityError) else "metadata"
    return Problem(kind, str(error), "")


def check_dataset(dataset: OpenedDataset, episode: int) -> DatasetCheck:
    """Return what the dataset is, and whether the episode's rows can be read."""
    meta = dataset.meta
    # In the Hub's cache, the folder of a commit has the commit's name.
    is_pinned = str(meta.root).endswith(f"/{meta.revision}")
    return DatasetCheck(
        meta_url=str(meta.root),
        url=dataset.files.url,
        revision=meta.revision if is_pinned else None,
        codebase_version=meta.info.codebase_version,
        fps=meta.fps,
        total_episodes=meta.total_episodes,
        total_frames=meta.total_frames,
        episode=episode,
        num_frames=int(meta.episodes["length"][episode]),
        table=_check_table(dataset, episode),
    )


def _check_table(dataset: OpenedDataset, episode: int) -> FileCheck:
    file = dataset.meta.get_data_file_path(episode).as_posix()
    found = check_file(dataset.files, file, want="parquet")
    if found.problem is not None:
        return found
    reader = RowReader(dataset, dataset.file_opener(), [])
    try:
        reader.read(episode)
    except DataFileError as error:
        return replace(found, problem=Problem("damaged", str(error), ""))
    except StorageError as error:
        return replace(found, problem=unreadable(error))
    finally:
        reader.close()
    return found


def _placeholder(address: DatasetLocation) -> Problem | None:
    """Return the problem of the first table of a local meta/ that is no Parquet file."""
    place = as_location(address.root or address.repo_id)
    tables = list_files(place, "meta", ".parquet") if place.local_root is not None else []
    problems = (check_file(place, table, want="parquet").problem for table in tables)
    return next((problem for problem in problems if problem is not None), None)


def _revisions(repo_id: str) -> str:
    """Return a sentence that names the revisions a Hub repo has."""
    repo_id = repo_id.removeprefix("hf://datasets/").split("@")[0]
    try:
        names = list_refs(repo_id, token=None)
    except StorageError:
        names = None
    if names is None:
        return ""
    return f"Its branches and tags are {', '.join(names)}; a commit's full hash will do too."
