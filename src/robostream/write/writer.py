# SPDX-License-Identifier: Apache-2.0
"""`DatasetWriter`: frames in, a LeRobot v3.0 dataset out; saved episodes survive a kill."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import shutil
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import av

from robostream.byte_sizes import format_bytes
from robostream.errors import FrameError, ModeError, WriteError
from robostream.meta import DatasetInfo, LeRobotDatasetMetadata
from robostream.write.encoder import EpisodeFile, video_info
from robostream.write.encoder_options import RecordingOptions
from robostream.write.episode_buffer import EpisodeBuffer, RecordedEpisode
from robostream.write.frames import check_frame
from robostream.write.join import plan_join, row_table, run_join, saved_part, write_rows
from robostream.write.publish import publish_saved
from robostream.write.saved_episodes import CameraInfo, DatasetTotals, StagedEpisode, commit_episode
from robostream.write.staging import StagingFolder, WriterLock, part_path

_RECORD_AGAIN = "Call clear_episode_buffer() and record this episode again."
_SAVE_AGAIN = "Free some space, then call save_episode() again; its frames are still there."
_MOVE_AGAIN = "Free some space, then record this episode again."
_FINALIZE_AGAIN = "Free some space, then call finalize() again, or resume the dataset later."

logger = logging.getLogger(__name__)


class OpenResources:
    """The lock, the open episode, and the thread that joins files; refers to no writer."""

    def __init__(self, lock: WriterLock, buffer: EpisodeBuffer) -> None:
        self.lock = lock
        self.buffer = buffer
        self.joiner = ThreadPoolExecutor(1, thread_name_prefix="join")
        self._joins: list[Future[None]] = []

    def submit_join(self, join: Callable[[], None]) -> None:
        """Run a join in the joining thread; a failure is logged."""
        future = self.joiner.submit(join)
        future.add_done_callback(_log_failure)
        self._joins = [*(other for other in self._joins if not other.done()), future]

    def release_dropped(self, root: Path) -> None:
        """Release everything when a writer is garbage-collected or the program ends."""
        # The garbage collector may call this in any thread at any moment, so it does not block.
        if not self.lock.is_mine:  # in a forked child: encoders and joins belong to the parent
            self.lock.drop()
            return
        logger.warning(
            "%s: a writer was dropped without finalize(). Its saved episodes are safe; resume the "
            "dataset to bring them in. %d frames were not saved and are lost.",
            *(root, self.buffer.num_frames),
        )
        self.buffer.abandon()
        self.joiner.shutdown(wait=False, cancel_futures=True)
        running = [join for join in self._joins if not join.done()]
        if running:  # at most one; no other writer may begin before it ends
            running[0].add_done_callback(lambda _: self.lock.drop())
        else:
            self.lock.drop()


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
        self.root: Path = staging.root
        self.info: DatasetInfo = meta.info
        self.options: RecordingOptions = options
        self._staging = staging
        self._totals = DatasetTotals.of_dataset(meta)
        blocks = {key: meta.features[key].get("info") or {} for key in meta.depth_keys}
        self._units = {
            k: block["depth_unit"] for k, block in blocks.items() if block.get("depth_unit")
        }
        # Facts about the cameras that info.json does not have yet, known from the first episode.
        # Every saved episode's record repeats them, so that they survive the loss of an episode.
        self._camera_info: CameraInfo = {}
        # Saved episodes of the files that later ones may still go to; by camera, None for rows.
        self._unjoined: dict[str | None, list[StagedEpisode]] = {}
        self._state = "recording"
        self._resources = OpenResources(lock, EpisodeBuffer(staging.open, self.info, options))
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
        return self._totals.num_episodes

    @property
    def num_frames(self) -> int:
        """Frames of all those episodes."""
        return self._totals.num_frames

    @property
    def tasks(self) -> list[str]:
        """The task texts in the order of their task_index."""
        return list(self._totals.tasks)

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
        columns = self._totals.complete_columns(recorded)
        table = row_table(self.info.features, columns)
        path = part_path(self._staging.open, None)
        rows = EpisodeFile(path, write_rows(table, path), recorded.num_frames)
        camera_info = self._camera_info or self._new_camera_info(recorded)
        totals, record = self._totals.with_episode(
            recorded, columns, rows=rows, camera_info=camera_info
        )
        commit_episode(self._staging, record)
        self._totals = totals
        self._units |= recorded.depth_units
        self._camera_info = camera_info
        self._resources.buffer.reset()
        # The full record is on disk; joining needs only the episode's places in files.
        self._join_full_files(dataclasses.replace(record, stats={}, camera_info={}))

    def _join_full_files(self, episode: StagedEpisode) -> None:
        """Join the episodes of each file that the new episode does not go to."""
        for camera, place in episode.places.items():
            members = self._unjoined.setdefault(camera, [])
            if members and members[0].places[camera] != place:
                part_of = partial(saved_part, self._staging)
                job = plan_join(camera, members, self.info, part_of)
                self._resources.submit_join(partial(run_join, job, self._staging))
                members.clear()
            members.append(episode)

    def _new_camera_info(self, recorded: RecordedEpisode) -> CameraInfo:
        """Return the facts about cameras that info.json does not have yet."""
        units = {k: unit for k, unit in recorded.depth_units.items() if k not in self._units}
        found: CameraInfo = {key: {"depth_unit": unit} for key, unit in units.items()}
        # Once there is an episode, info.json describes all videos.
        for key in [] if self.info.total_episodes else self.info.video_keys:
            is_depth = key in self.info.depth_keys
            encoder = self.options.depth_encoder if is_depth else self.options.encoder
            path = part_path(self._staging.open, key)
            block = video_info(path, fps=self.info.fps, encoder=encoder)
            found.setdefault(key, {}).update(block)
        return found

    def _require_recording(self) -> None:
        reasons = {
            "finalizing": "finalize() has failed, so this writer cannot record any more. Call "
            "finalize() again, then resume the dataset to add episodes.",
            "closed": "this writer is closed. To add episodes, resume the dataset.",
        }
        if reason := reasons.get(self._state):
            raise ModeError(f"{self.root}: {reason}")


@contextlib.contextmanager
def wrap_errors(what: str, root: Path, *, cure: str) -> Iterator[None]:
    """Re-raise errors of the disk or an encoder as a WriteError that names what was written."""
    try:
        yield
    except WriteError:
        raise
    except (OSError, av.FFmpegError) as error:
        raise WriteError(
            f"{root}: writing {what} failed: {error}. {describe_free_space(root)} "
            f"All episodes saved before are intact. {cure}"
        ) from error


def describe_free_space(root: Path) -> str:
    """Return a sentence about the space left on the disk of a folder."""
    try:
        return f"The disk has {format_bytes(shutil.disk_usage(root).free)} left."
    except OSError as error:
        return f"The folder cannot be reached ({error})."


def _log_failure(join: Future[None]) -> None:
    if not join.cancelled() and (error := join.exception()):
        logger.warning(
            "joining saved episodes while recording failed; finalize() will try again: %s", error
        )
