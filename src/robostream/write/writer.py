# SPDX-License-Identifier: Apache-2.0
"""`DatasetWriter`: frames in, a LeRobot v3.0 dataset out; saved episodes survive a kill."""

from __future__ import annotations

import dataclasses
import os
import warnings
import weakref
from collections.abc import Mapping
from functools import partial
from typing import Any

from robostream.errors import FrameError, ModeError
from robostream.meta import DatasetInfo, LeRobotDatasetMetadata
from robostream.write.episode_buffer import EpisodeBuffer, RecordedEpisode, RecordingOptions
from robostream.write.features import video_info
from robostream.write.frames import check_frame
from robostream.write.join import closed_joins, run_join
from robostream.write.progress import Progress, complete_columns, make_record
from robostream.write.publish import publish_saved
from robostream.write.rows import row_table, write_rows
from robostream.write.session import OpenResources, WriterLock, wrap_errors
from robostream.write.staging import (
    StagedEpisode,
    StagingFolder,
    commit_episode,
    rows_path,
    video_path,
)

_RECORD_AGAIN = "Call clear_episode_buffer() and record this episode again."
_SAVE_AGAIN = "Free some space, then call save_episode() again; its frames are still there."
_MOVE_AGAIN = "Free some space, then record this episode again."
_FINALIZE_AGAIN = "Free some space, then call finalize() again, or resume the dataset later."


class DatasetWriter:
    """Records episodes into a dataset folder; made by `create_writer` or `resume_writer`.

    An episode is safe once `save_episode` has returned, whatever happens to the process. It is
    part of the dataset once `finalize` has returned, here or after a later resume. Use a writer
    from one thread; only one writer can be open per dataset.

    Attributes:
        root: The dataset's folder.
        info: Its info.json as it was when the writer was opened.
        options: The encoders and their queues; with `info`, what `encode_episode` needs.
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
        self.options = options
        self._staging = staging
        self._progress = Progress.of_dataset(meta)
        self._units = _known_units(meta.info)
        # Facts about the cameras that info.json does not have yet. Every saved episode's record
        # repeats them, so that they survive the loss of an episode.
        self._camera_info: dict[str, dict[str, Any]] = {}
        # Cameras whose videos info.json describes: all of them, once there is an episode.
        self._described = set(meta.video_keys) if meta.total_episodes else set()
        self._staged: list[StagedEpisode] = []
        self._state = "recording"
        new_buffer = partial(EpisodeBuffer, staging.open, self.info, options)
        self._resources = OpenResources(lock, new_buffer)
        self._if_dropped = weakref.finalize(self, self._resources.release_dropped, self.root)

    def __enter__(self) -> DatasetWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and self._state == "recording":
            self.clear_episode_buffer()
        self.finalize()

    @property
    def num_episodes(self) -> int:
        """Episodes in the dataset, and saved ones that finalize() will bring into it."""
        return self._progress.num_episodes

    @property
    def num_frames(self) -> int:
        """Frames of all those episodes."""
        return self._progress.num_frames

    @property
    def tasks(self) -> list[str]:
        """The task texts in the order of their task_index."""
        return list(self._progress.tasks)

    def has_pending_frames(self) -> bool:
        """Return whether frames were added that are not saved yet."""
        return self._resources.buffer.num_frames > 0

    def add_frame(self, frame: Mapping[str, Any]) -> None:
        """Add a frame to the open episode; blocks while a camera's encoder is behind.

        Args:
            frame: A value for each feature, of exactly its dtype and shape, and the `task`.
                Cameras take HWC or CHW arrays (uint8, or floats from 0 to 1) or PIL images.

        Raises:
            FrameError: The frame has faults, which the message lists; it is not added.
            WriteError: The disk or an encoder failed; saved episodes are intact.
        """
        self._require_recording()
        buffer = self._resources.buffer
        episode = f"episode {self.num_episodes}"
        checked = check_frame(
            frame,
            self.info.features,
            depth_units={**buffer.depth_units, **self._units},
            where=f"frame {buffer.num_frames} of {episode}",
        )
        with wrap_errors(f"the images of {episode}", self.root, cure=_RECORD_AGAIN):
            buffer.add(checked)

    def save_episode(self) -> None:
        """Save the added frames as an episode; when this returns, it survives any crash."""
        self._require_recording()
        buffer = self._resources.buffer
        episode = f"episode {self.num_episodes} ({buffer.num_frames} frames)"
        if buffer.num_frames == 0:
            raise FrameError(
                f"{self.root}: no frames were added since the last episode, so there is nothing to "
                "save. Call add_frame() first."
            )
        with wrap_errors(f"the images of {episode}", self.root, cure=_RECORD_AGAIN):
            recorded = buffer.finish()
        with wrap_errors(episode, self.root, cure=_SAVE_AGAIN):
            self._commit(recorded)

    def save_recorded(self, episode: RecordedEpisode) -> None:
        """Save an episode from `encode_episode` as the next one; moves its folder.

        The folder must be on the dataset's file system, and no unsaved frames may be pending.
        """
        self._require_recording()
        if self.has_pending_frames():
            raise ModeError(
                f"{self.root}: {self._resources.buffer.num_frames} frames were added that are not "
                "saved yet. Call save_episode() or clear_episode_buffer() first."
            )
        with wrap_errors(f"episode {self.num_episodes}", self.root, cure=_MOVE_AGAIN):
            os.rename(episode.folder, self._staging.open)
            self._commit(episode)

    def clear_episode_buffer(self) -> None:
        """Discard the frames added since the last saved episode."""
        self._require_recording()
        self._resources.buffer.discard()
        self._resources.reset_buffer()

    def finalize(self) -> None:
        """Bring all saved episodes into the dataset and close the writer; may be called again.

        Frames that were added but not saved are discarded, with a warning.
        """
        if self._state == "closed":
            return
        if self.has_pending_frames():
            warnings.warn(
                f"{self.root}: {self._resources.buffer.num_frames} frames were added but not saved "
                "and are discarded; call save_episode() before finalize()",
                stacklevel=2,
            )
        self._resources.buffer.discard()
        self._resources.reset_buffer()
        self._state = "finalizing"
        self._resources.joiner.shutdown()
        with wrap_errors("the dataset's files", self.root, cure=_FINALIZE_AGAIN):
            publish_saved(self._staging)
            self._resources.lock.release()
        self._if_dropped.detach()
        self._state = "closed"

    def close_unfinished(self) -> None:
        """Close the writer without finalize(); a later resume can publish the saved episodes."""
        if self._state == "closed":
            return
        self._state = "closed"
        try:
            self._resources.buffer.discard()
            self._resources.joiner.shutdown(cancel_futures=True)
        finally:
            self._resources.lock.drop()
            self._if_dropped.detach()

    def _commit(self, recorded: RecordedEpisode) -> None:
        """Save the episode whose videos are in the open folder."""
        columns = complete_columns(recorded, self._progress)
        table = row_table(self.info.features, columns)
        rows_bytes = write_rows(table, rows_path(self._staging.open))
        after = self._progress.with_episode(recorded, rows_bytes=rows_bytes)
        camera_info = self._new_camera_info(recorded)
        record = make_record(recorded, columns, after=after, camera_info=camera_info)
        commit_episode(self._staging, record)
        self._progress = after
        self._units |= recorded.depth_units
        self._camera_info = camera_info
        self._resources.reset_buffer()
        # The full record is on disk; joining needs only the episode's places in files.
        self._staged.append(dataclasses.replace(record, stats={}, camera_info={}))
        for job in closed_joins(self._staged):
            self._resources.submit_join(partial(run_join, job, self._staging, self.info))

    def _new_camera_info(self, recorded: RecordedEpisode) -> dict[str, dict[str, Any]]:
        """Return the facts about cameras that info.json does not have yet."""
        found = {key: dict(entry) for key, entry in self._camera_info.items()}
        for key, unit in recorded.depth_units.items():
            if key not in self._units:
                found.setdefault(key, {})["depth_unit"] = unit
        known = self._described | set(self._camera_info)
        for key, result in recorded.cameras.items():
            if result.video is not None and key not in known:
                is_depth = key in self.info.depth_keys
                encoder = self.options.depth_encoder if is_depth else self.options.encoder
                path = video_path(self._staging.open, key)
                block = video_info(path, fps=self.info.fps, encoder=encoder)
                found.setdefault(key, {}).update(block)
        return found

    def _require_recording(self) -> None:
        if self._state == "finalizing":
            raise ModeError(
                f"{self.root}: finalize() has failed, so this writer cannot record any more. Call "
                "finalize() again, then resume the dataset to add episodes."
            )
        if self._state == "closed":
            raise ModeError(
                f"{self.root}: this writer is closed. To add episodes, resume the dataset."
            )


def _known_units(info: DatasetInfo) -> dict[str, str]:
    blocks = {key: info.features[key].get("info") or {} for key in info.depth_keys}
    return {key: block["depth_unit"] for key, block in blocks.items() if block.get("depth_unit")}
