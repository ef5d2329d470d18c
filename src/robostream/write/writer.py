# SPDX-License-Identifier: Apache-2.0
"""`DatasetWriter`: frames in, a LeRobot v3.0 dataset out; saved episodes survive a kill."""

from __future__ import annotations

import dataclasses
import logging
import os
import warnings
import weakref
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from robostream.errors import FrameError, ModeError
from robostream.meta import DatasetInfo, LeRobotDatasetMetadata
from robostream.write.apart import EpisodeApart, depth_units_of
from robostream.write.episode_buffer import EpisodeBuffer, RecordedEpisode, RecordingOptions
from robostream.write.failures import writing
from robostream.write.file_places import MB, OpenFile, SizeRules
from robostream.write.frame_check import CheckedFrame, check_frame
from robostream.write.held import Held, let_go
from robostream.write.jobs import closed_jobs, run_job
from robostream.write.join_data import write_rows
from robostream.write.lock import WriterLock
from robostream.write.publish import first_new_place, publish_saved
from robostream.write.row_table import row_table
from robostream.write.saved_so_far import SavedSoFar, all_columns, staged_record
from robostream.write.staging import (
    StagedEpisode,
    StagingFolder,
    commit_episode,
    rows_path,
    video_path,
)
from robostream.write.video_info import video_info

logger = logging.getLogger(__name__)

_RECORD_AGAIN = "Call clear_episode_buffer() and record this episode again."
_SAVE_AGAIN = "Free some space, then call save_episode() again; its frames are still there."
_MOVE_AGAIN = "Free some space, then record this episode again."
_FINALIZE_AGAIN = "Free some space, then call finalize() again, or resume the dataset later."


class DatasetWriter:
    """Records episodes into a dataset folder; made by `create_writer` or `resume_writer`.

    An episode is safe once `save_episode` has returned, whatever happens to the process. It is
    part of the dataset once `finalize` has returned, here or after a later resume. One thread
    may use a writer; only one writer may be open per dataset.

    Attributes:
        root: The dataset's folder.
        info: Its info.json as it was when the writer was opened.
        options: How it encodes; with `info`, what `record_apart` needs.
    """

    def __init__(
        self,
        meta: LeRobotDatasetMetadata,
        staging: StagingFolder,
        lock: WriterLock,
        options: RecordingOptions,
    ) -> None:
        self.root = staging.root
        self.info: DatasetInfo = meta.info
        self._staging = staging
        self.options = options
        self._so_far = _saved_before(meta)
        self._rules = _size_rules(meta.info)
        self._units = _known_units(meta.info)
        # What is known about the cameras from the first episode, and not in info.json yet. The
        # record of every saved episode repeats it, so that it is not lost with one of them.
        self._camera_info: dict[str, dict[str, Any]] = {}
        # Cameras whose videos info.json describes; these are all, once there is an episode.
        self._described = set(meta.video_keys) if meta.total_episodes else set()
        self._open_units: dict[str, str] = {}
        self._staged: list[StagedEpisode] = []
        self._state = "recording"
        self._held = Held(
            lock,
            EpisodeBuffer(staging.open, self.info, options),
            ThreadPoolExecutor(1, thread_name_prefix="join"),
        )
        self._if_dropped = weakref.finalize(self, let_go, self._held, self.root)

    def __enter__(self) -> DatasetWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and self._state == "recording":
            self.clear_episode_buffer()
        self.finalize()

    @property
    def num_episodes(self) -> int:
        """Episodes in the dataset, and those saved that finalize() will bring into it."""
        return self._so_far.num_episodes

    @property
    def num_frames(self) -> int:
        """Frames of all those episodes."""
        return self._so_far.num_frames

    @property
    def tasks(self) -> list[str]:
        """The task texts in the order of their task_index."""
        return list(self._so_far.tasks)

    def has_pending_frames(self) -> bool:
        """Return whether frames were added that are not saved yet."""
        return self._held.buffer.num_frames > 0

    def add_frame(self, frame: Mapping[str, Any]) -> None:
        """Add a frame to the open episode; waits while a camera's encoder is behind.

        Args:
            frame: A value for each feature, of exactly its dtype and shape, and the `task`.
                Cameras take HWC or CHW arrays (uint8, or floats from 0 to 1) or PIL images.

        Raises:
            FrameError: The frame has faults, which the message lists; nothing of it is kept.
            WriteError: The disk or an encoder failed; saved episodes are intact.
        """
        self._require_recording()
        episode = f"episode {self.num_episodes}"
        checked = check_frame(
            frame,
            self.info.features,
            depth_units={**self._open_units, **self._units},
            where=f"frame {self._held.buffer.num_frames} of {episode}",
        )
        with writing(f"the images of {episode}", self.root, cure=_RECORD_AGAIN):
            self._held.buffer.add(checked)
        self._note_units(checked)

    def save_episode(self) -> None:
        """Make the added frames an episode; when this returns, it survives any crash."""
        self._require_recording()
        length = self._held.buffer.num_frames
        episode = f"episode {self.num_episodes} ({length} frames)"
        if length == 0:
            raise FrameError(
                f"{self.root}: no frame was added since the last episode, so there is none to "
                "save. Call add_frame() first."
            )
        with writing(f"the images of {episode}", self.root, cure=_RECORD_AGAIN):
            recorded = self._held.buffer.finish()
        with writing(episode, self.root, cure=_SAVE_AGAIN):
            self._commit(recorded)

    def save_apart(self, apart: EpisodeApart) -> None:
        """Make an episode that was recorded apart the next one; its folder is moved from there.

        The folder must be on the dataset's file system. Nothing may be recorded here meanwhile.
        """
        self._require_recording()
        if self.has_pending_frames():
            raise ModeError(
                f"{self.root}: {self._held.buffer.num_frames} frames were added that are not saved "
                "yet. Call save_episode() or clear_episode_buffer() first."
            )
        with writing(f"episode {self.num_episodes}", self.root, cure=_MOVE_AGAIN):
            os.rename(apart.folder, self._staging.open)
            self._open_units = dict(apart.depth_units)
            self._commit(apart.episode)

    def clear_episode_buffer(self) -> None:
        """Throw away the frames added since the last saved episode."""
        self._require_recording()
        self._held.buffer.discard()
        self._forget_open()

    def finalize(self) -> None:
        """Bring all saved episodes into the dataset and close the writer; may be called again.

        Frames that were added but not saved are thrown away, with a warning.
        """
        if self._state == "closed":
            return
        if self.has_pending_frames():
            warnings.warn(
                f"{self.root}: {self._held.buffer.num_frames} frames were added but not saved and "
                "are thrown away; call save_episode() before finalize()",
                stacklevel=2,
            )
        self._held.buffer.discard()
        self._forget_open()
        self._state = "finalizing"
        self._held.joiner.shutdown()
        with writing("the dataset's files", self.root, cure=_FINALIZE_AGAIN):
            publish_saved(self._staging)
            self._held.lock.release()
        self._if_dropped.detach()
        self._state = "closed"

    def close_unfinished(self) -> None:
        """Close the writer without finalize(): saved episodes are left to a resume, or deleted."""
        if self._state == "closed":
            return
        self._state = "closed"
        try:
            self._held.buffer.discard()
            self._held.joiner.shutdown(cancel_futures=True)
        finally:
            self._held.lock.drop()
            self._if_dropped.detach()

    def _commit(self, recorded: RecordedEpisode) -> None:
        """Make the episode whose files lie in the open folder a saved one."""
        record, so_far = self._stage(recorded)
        commit_episode(self._staging, record)
        self._so_far = so_far
        self._units |= self._open_units
        self._camera_info = record.camera_info
        self._forget_open()
        # The whole record is on disk. Here only the files that the episode goes to are needed.
        self._staged.append(dataclasses.replace(record, stats={}, camera_info={}))
        self._join_closed_files()

    def _stage(self, recorded: RecordedEpisode) -> tuple[StagedEpisode, SavedSoFar]:
        columns = all_columns(recorded, self._so_far, fps=self.info.fps)
        table = row_table(self.info.features, columns)
        rows_bytes = write_rows(table, rows_path(self._staging.open))
        so_far = self._so_far.with_episode(recorded, rows_bytes=rows_bytes, rules=self._rules)
        camera_info = self._found_info(recorded)
        record = staged_record(
            recorded, columns, after=so_far, info=self.info, camera_info=camera_info
        )
        return record, so_far

    def _found_info(self, recorded: RecordedEpisode) -> dict[str, dict[str, Any]]:
        """Return what info.json does not say yet about the cameras."""
        found = {key: dict(entry) for key, entry in self._camera_info.items()}
        for key, unit in self._open_units.items():
            found.setdefault(key, {})["depth_unit"] = unit
        known = self._described | set(self._camera_info)
        for key, result in recorded.cameras.items():
            if result.video is not None and key not in known:
                found.setdefault(key, {}).update(self._video_info(key))
        return found

    def _video_info(self, key: str) -> dict[str, Any]:
        depth = key in self.info.depth_keys
        encoder = self.options.depth_encoder if depth else self.options.encoder
        path = video_path(self._staging.open, key)
        return video_info(path, fps=self.info.fps, encoder=encoder)

    def _note_units(self, frame: CheckedFrame) -> None:
        self._open_units |= depth_units_of(frame, self.info, known=self._units)

    def _forget_open(self) -> None:
        self._held.buffer = EpisodeBuffer(self._staging.open, self.info, self.options)
        self._open_units = {}

    def _join_closed_files(self) -> None:
        held = self._held
        held.joins = [join for join in held.joins if not join.done()]
        for job in closed_jobs(self._staged):
            join = held.joiner.submit(run_job, job, self._staging, self.info)
            held.joins.append(join)
            join.add_done_callback(_log_failure)

    def _require_recording(self) -> None:
        if self._state == "finalizing":
            raise ModeError(
                f"{self.root}: finalize() has failed, so this writer cannot record any more. Call "
                "finalize() again, then resume the dataset to add episodes."
            )
        if self._state == "closed":
            raise ModeError(
                f"{self.root}: finalize() has closed this writer. To add episodes, resume the "
                "dataset."
            )


def _log_failure(join: Future[None]) -> None:
    if not join.cancelled() and (error := join.exception()):
        logger.warning(
            "joining saved episodes while recording failed; finalize() will try again: %s", error
        )


def _saved_before(meta: LeRobotDatasetMetadata) -> SavedSoFar:
    return SavedSoFar(
        num_episodes=meta.total_episodes,
        num_frames=meta.total_frames,
        tasks=tuple(meta.tasks),
        data=OpenFile(first_new_place(meta, "data")),
        videos={key: OpenFile(first_new_place(meta, f"videos/{key}")) for key in meta.video_keys},
    )


def _size_rules(info: DatasetInfo) -> SizeRules:
    return SizeRules(
        chunks_size=info.chunks_size,
        data_limit_bytes=info.data_files_size_in_mb * MB,
        video_limit_bytes=info.video_files_size_in_mb * MB,
    )


def _known_units(info: DatasetInfo) -> dict[str, str]:
    blocks = {key: info.features[key].get("info") or {} for key in info.depth_keys}
    return {key: block["depth_unit"] for key, block in blocks.items() if block.get("depth_unit")}
