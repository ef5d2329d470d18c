# SPDX-License-Identifier: Apache-2.0
"""Starting to record: a writer on a new dataset, or on one that is to grow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

from robostream import arguments, config
from robostream.errors import MetadataError, WriteError
from robostream.meta import DatasetInfo, DepthCoding, LeRobotDatasetMetadata
from robostream.storage import as_location, write_bytes_atomic
from robostream.write.bad_episodes import set_bad_aside
from robostream.write.encoder_options import DepthEncoderConfig, VideoEncoderConfig
from robostream.write.episode_buffer import RecordingOptions
from robostream.write.failures import writing
from robostream.write.lock import WriterLock
from robostream.write.publish import finish_publishing, publish_saved
from robostream.write.recorded_features import check_cameras, features_to_record
from robostream.write.staging import StagingFolder
from robostream.write.text_input import text_fault
from robostream.write.writer import DatasetWriter


def create_writer(
    root: str | Path,
    *,
    fps: int,
    features: Mapping[str, Any],
    robot_type: str | None = None,
    use_videos: bool = True,
    chunks_size: int = config.CHUNKS_SIZE,
    data_files_size_in_mb: float = config.DATA_FILES_SIZE_IN_MB,
    video_files_size_in_mb: float = config.VIDEO_FILES_SIZE_IN_MB,
    encoder: VideoEncoderConfig | None = None,
    depth_encoder: DepthEncoderConfig | None = None,
    queue_frames: int = config.ENCODER_QUEUE_FRAMES,
) -> DatasetWriter:
    """Return a writer on a new, empty dataset.

    Args:
        root: The dataset's folder; it must not exist yet, or be empty. "~" is the home folder.
        fps: Frames per second.
        features: By name, `{"dtype", "shape", "names"}` of each camera and column; the default
            features are added.
        robot_type: The robot that is recorded.
        use_videos: Whether cameras may be stored as video.
        chunks_size: Most files per chunk folder.
        data_files_size_in_mb: Size at which a new Parquet file is begun.
        video_files_size_in_mb: Size at which a new MP4 is begun.
        encoder: How colour cameras are encoded.
        depth_encoder: How depth cameras are encoded.
        queue_frames: Images that may wait for one encoder before add_frame() waits.
    """
    root = _recording_folder(root)
    use_videos = arguments.truth(use_videos, "use_videos")
    options = RecordingOptions(
        encoder or VideoEncoderConfig(), depth_encoder or DepthEncoderConfig(), queue_frames
    )
    info = DatasetInfo(
        fps=arguments.number(fps, "fps"),  # type: ignore[arg-type]  # readers take 29.97, too
        features=features_to_record(features, use_videos=use_videos),
        robot_type=arguments.of_kind(robot_type, "robot_type", str | None, "a text"),
        chunks_size=arguments.whole_number(chunks_size, "chunks_size", least=1),
        data_files_size_in_mb=arguments.number(data_files_size_in_mb, "data_files_size_in_mb"),
        video_files_size_in_mb=arguments.number(video_files_size_in_mb, "video_files_size_in_mb"),
        video_path=config.VIDEO_PATH if use_videos else None,
    )
    info.check("create")
    if fault := text_fault(info.to_json()):
        raise MetadataError(f"{config.INFO_PATH} of the new dataset: {fault}")
    check_cameras(info, options.encoder, options.depth_encoder)
    _check_free(root)
    staging = StagingFolder(root)
    cure = "Choose another folder, or free some space."
    with _lock(staging, "a new dataset", cure=cure) as lock:
        with writing("a new dataset", root, cure=cure):
            staging.clean()
            write_bytes_atomic(root / config.INFO_PATH, info.to_json().encode())
        return DatasetWriter(LeRobotDatasetMetadata(root.name, root=root), staging, lock, options)


def resume_writer(
    root: str | Path,
    *,
    encoder: VideoEncoderConfig | None = None,
    depth_encoder: DepthEncoderConfig | None = None,
    queue_frames: int = config.ENCODER_QUEUE_FRAMES,
) -> DatasetWriter:
    """Return a writer that adds episodes to a dataset, in new files.

    Episodes that an interrupted recording had saved are brought into the dataset first; a damaged
    one is kept in `.bad-episodes/` instead, with a warning. If no encoder is given, cameras are
    encoded in the way that info.json says they were encoded before.
    """
    root = _recording_folder(root)
    if not (root / config.INFO_PATH).is_file():
        raise WriteError(
            f"{root}: no {config.INFO_PATH} here, so there is no dataset to resume. Give the "
            "folder of one, or create it."
        )
    staging = StagingFolder(root)
    cure = "Make sure that there is space and the folder may be written to, then resume again."
    with _lock(staging, "the lock", cure=cure) as lock:
        with writing("the saved episodes", root, cure=cure):
            finish_publishing(staging)
            set_bad_aside(staging)
            publish_saved(staging)
        meta = LeRobotDatasetMetadata(root.name, root=root)
        options = _resumed_options(meta.info, encoder, depth_encoder, queue_frames)
        check_cameras(meta.info, options.encoder, options.depth_encoder)
        return DatasetWriter(meta, staging, lock, options)


@contextmanager
def _lock(staging: StagingFolder, what: str, *, cure: str) -> Iterator[WriterLock]:
    """Lock a dataset for a writer that is made in the block; an error there unlocks it again."""
    with writing(what, staging.root, cure=cure):
        lock = WriterLock(staging.path)
    try:
        yield lock
    except BaseException:
        lock.drop()
        raise


def _recording_folder(root: str | Path) -> Path:
    # Absolute from the start, so that a program may change its working folder while it records.
    folder = as_location(arguments.of_kind(root, "root", str | PathLike, "a path")).local_root
    if folder is None:
        raise WriteError(
            f"{root}: want a local folder to record into, found a URL. Record locally, then copy "
            "the finished dataset there."
        )
    return folder


def _check_free(root: Path) -> None:
    # A create() that was killed may leave a lock and a part of a file. They are no dataset.
    kept = (p for p in root.rglob("*") if p.is_file() and p.name != "lock" and p.suffix != ".part")
    if (found := next(kept, None)) is not None:
        raise WriteError(
            f"{root}: want a new or empty folder, found {found.relative_to(root)} in it. Choose "
            "another folder, delete this one, or resume the dataset in it."
        )


def _resumed_options(
    info: DatasetInfo,
    encoder: VideoEncoderConfig | None,
    depth_encoder: DepthEncoderConfig | None,
    queue_frames: int,
) -> RecordingOptions:
    colour = _recorded_block(info, depth=False)
    depth = _recorded_block(info, depth=True)
    try:
        encoder = encoder or VideoEncoderConfig.from_info(colour)
        depth_encoder = depth_encoder or DepthEncoderConfig.from_info(depth)
    except ValueError as error:
        raise ValueError(
            f"new videos cannot be encoded in the way that info.json describes: {error}. Pass the "
            "encoder to resume with."
        ) from error
    options = RecordingOptions(encoder, depth_encoder, queue_frames)
    if depth and depth_encoder.coding != DepthCoding.from_info(depth):
        raise ValueError(
            f"want the depth coding of this dataset, {DepthCoding.from_info(depth)}, found "
            f"{depth_encoder.coding}; readers would decode wrong distances. Leave depth_encoder "
            "out to go on as before."
        )
    return options


def _recorded_block(info: DatasetInfo, *, depth: bool) -> Mapping[str, Any]:
    """Return what info.json says about the video of the first such camera that has one."""
    for key in info.video_keys:
        block: Mapping[str, Any] = info.features[key].get("info") or {}
        if (key in info.depth_keys) == depth and "video.codec" in block:
            return block
    return {}
