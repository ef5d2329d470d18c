# SPDX-License-Identifier: Apache-2.0
"""Opens a writer on a new dataset, or on an existing one to add episodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

from robostream import arguments, config
from robostream.errors import MetadataError, WriteError
from robostream.meta import DatasetInfo, DepthCoding, LeRobotDatasetMetadata, parse_info
from robostream.storage import as_location, write_bytes_atomic
from robostream.write.encoder_options import (
    DepthEncoderConfig,
    RecordingOptions,
    VideoEncoderConfig,
)
from robostream.write.frames import features_to_record, text_fault
from robostream.write.publish import finish_publishing, publish_saved
from robostream.write.repair import exclude_damaged
from robostream.write.staging import StagingFolder, WriterLock
from robostream.write.writer import DatasetWriter, wrap_errors


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
        root: The dataset's folder, which must be new or empty; "~" is the home folder.
        fps: Frames per second.
        features: By name, `{"dtype", "shape", "names"}` of each camera and column; the default
            features are added.
        robot_type: The robot's name.
        use_videos: Whether cameras may be stored as video.
        chunks_size: Most files per chunk folder.
        data_files_size_in_mb: Size at which a new Parquet file begins.
        video_files_size_in_mb: Size at which a new MP4 begins.
        encoder: The encoder of colour cameras.
        depth_encoder: The encoder of depth cameras.
        queue_frames: Images that may wait for one encoder before add_frame() blocks.
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
    options.check_cameras(info)
    _check_free(root)
    staging = StagingFolder(root)
    cure = "Choose another folder, or free some space."
    with _lock(staging, "a new dataset", cure=cure) as lock:
        with wrap_errors("a new dataset", root, cure=cure):
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

    Episodes saved by an interrupted recording are published first; a damaged one is moved to
    `.bad-episodes/` instead, with a warning. An encoder that is not given is taken from info.json.
    """
    root = _recording_folder(root)
    if not (root / config.INFO_PATH).is_file():
        raise WriteError(
            f"{root}: found no {config.INFO_PATH}, so there is no dataset to resume. Give the "
            "folder of one, or create one."
        )
    path = root / config.INFO_PATH
    version = parse_info(path.read_bytes(), str(path)).codebase_version
    if version != config.CODEBASE_VERSION:
        raise WriteError(
            f"{root}: the dataset has version {version}, which robostream reads but does not "
            f"write. Convert it to {config.CODEBASE_VERSION} with `robostream convert`, then "
            "resume that."
        )
    staging = StagingFolder(root)
    cure = "Make sure that there is space and the folder may be written to, then resume again."
    with _lock(staging, "the lock", cure=cure) as lock:
        with wrap_errors("the saved episodes", root, cure=cure):
            finish_publishing(staging)
            exclude_damaged(staging)
            publish_saved(staging)
        meta = LeRobotDatasetMetadata(root.name, root=root)
        options = _resumed_options(meta.info, encoder, depth_encoder, queue_frames)
        options.check_cameras(meta.info)
        return DatasetWriter(meta, staging, lock, options)


@contextmanager
def _lock(staging: StagingFolder, what: str, *, cure: str) -> Iterator[WriterLock]:
    """Lock a dataset for the writer made in this block; an error releases the lock."""
    with wrap_errors(what, staging.root, cure=cure):
        lock = WriterLock(staging.path)
    try:
        yield lock
    except BaseException:
        lock.drop()
        raise


def _recording_folder(root: str | Path) -> Path:
    # An absolute path, since a program may change its working directory while it records.
    folder = as_location(arguments.of_kind(root, "root", str | PathLike, "a path")).local_root
    if folder is None:
        raise WriteError(
            f"{root}: want a local folder to record into, found a URL. Record locally, then copy "
            "the finished dataset there."
        )
    return folder


def _check_free(root: Path) -> None:
    # A killed create_writer() may leave a lock and a partial file.
    files = (p for p in root.rglob("*") if p.is_file() and p.name != "lock" and p.suffix != ".part")
    if (found := next(files, None)) is not None:
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
    colour = _recorded_block(info, is_depth=False)
    depth = _recorded_block(info, is_depth=True)
    try:
        encoder = encoder or VideoEncoderConfig.from_info(colour)
        depth_encoder = depth_encoder or DepthEncoderConfig.from_info(depth)
    except ValueError as error:
        raise ValueError(
            f"the encoder that info.json describes cannot be used: {error}. Pass the encoder to "
            "resume with."
        ) from error
    options = RecordingOptions(encoder, depth_encoder, queue_frames)
    if depth and depth_encoder.coding != DepthCoding.from_info(depth):
        raise ValueError(
            f"want the depth coding of this dataset, {DepthCoding.from_info(depth)}, found "
            f"{depth_encoder.coding}; readers would decode wrong distances. Omit depth_encoder to "
            "continue with the dataset's coding."
        )
    return options


def _recorded_block(info: DatasetInfo, *, is_depth: bool) -> Mapping[str, Any]:
    """Return the `info` block of the first colour or depth camera that has a video."""
    for key in info.video_keys:
        block: Mapping[str, Any] = info.features[key].get("info") or {}
        if (key in info.depth_keys) == is_depth and "video.codec" in block:
            return block
    return {}
