# SPDX-License-Identifier: Apache-2.0
"""`LeRobotDataset`: reads samples by index, or records episodes, with LeRobot's API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

from torch.utils.data import Dataset

from robostream import arguments, config
from robostream.assemble import (
    AbsoluteToRelative,
    DatasetLocation,
    EpisodeFilter,
    ImageTransforms,
    Resize,
    SampleOptions,
    choose_cache,
    download_from_hub,
    open_dataset,
)
from robostream.byte_sizes import parse_bytes
from robostream.errors import ModeError
from robostream.loader import MapReader, for_pickle
from robostream.meta import Features, LeRobotDatasetMetadata, Stats, forward
from robostream.storage import explicit_root
from robostream.write import (
    DatasetWriter,
    DepthEncoderConfig,
    VideoEncoderConfig,
    create_writer,
    push_dataset,
    resume_writer,
)


class LeRobotDataset(Dataset[dict[str, Any]]):
    """A map-style LeRobot dataset: v2.0, v2.1 or v3.0; recording makes v3.0.

    The constructor opens a dataset for reading. `create` and `resume` open one for recording; it
    can be read after `finalize`.

    Args:
        repo_id: The dataset's name, path or URL; only a name if `root` is given.
        root: The dataset's folder or fsspec URL.
        episodes: Episodes to read; None for all.
        episode_filter: Takes an episode's row, returns whether to read it.
        image_transforms: Applied to each camera of a sample, except depth cameras.
        delta_timestamps: Windows by key, in seconds relative to a frame.
        tolerance_s: Largest difference between a frame's time in the video and in the table.
        revision: Hub branch, tag or commit; pinned to a commit.
        force_cache_sync: Download cached files again.
        download_videos: Whether to download a Hub dataset's videos; if not, pass `camera_keys=[]`.
        video_backend: "pyav", or "torchcodec" if it is installed; None for the default.
        return_uint8: Videos as uint8 instead of float32 in [0, 1].
        depth_output_unit: "mm" or "m".
        token: Hub token.
        camera_keys: Cameras to decode; None for all, an empty list for none.
        resize: The (height, width) to scale decoded frames to, or one such pair per camera.
        row_cache_bytes: RAM for rows of recently used episodes, per process. Images in Parquet that
            do not fit are memory-mapped from the disk cache.
        frame_cache_bytes: RAM for recently decoded frames, per process.
        storage_options: Options of the URL's filesystem: keys, tokens, endpoint.
        cache_dir: Folder of the disk cache for remote datasets, shared by all processes and later
            runs; by default in the user's cache folder.
        cache_limit: Size limit of the disk cache, such as "200GB"; by default half of the free
            space, 0 for no cache.

    Attributes:
        meta: The dataset's metadata.
        reader: Serves the samples; None while episodes are recorded.
        writer: Records episodes; None while samples are read.
    """

    root: Final[Path | str] = forward("meta.root", "The dataset's folder, or URL.")
    revision: Final[str | None] = forward(
        "meta.revision", "The pinned commit, for a dataset on the Hub."
    )
    fps: Final[int] = forward("meta.fps", "Frames per second.")
    features: Final[Features] = forward("meta.features", "All features.")

    def __init__(
        self,
        repo_id: str,
        root: str | Path | None = None,
        episodes: Sequence[int] | None = None,
        episode_filter: EpisodeFilter | None = None,
        image_transforms: ImageTransforms | None = None,
        delta_timestamps: Mapping[str, Sequence[float]] | None = None,
        tolerance_s: float = config.TOLERANCE_S,
        revision: str | None = None,
        force_cache_sync: bool = False,
        download_videos: bool = True,
        video_backend: str | None = None,
        return_uint8: bool = False,
        depth_output_unit: str = "mm",
        *,
        token: str | None = None,
        camera_keys: Sequence[str] | None = None,
        resize: Resize | None = None,
        row_cache_bytes: int | str = config.ROW_CACHE_BYTES,
        frame_cache_bytes: int | str = config.MAP_FRAME_CACHE_BYTES,
        storage_options: dict[str, Any] | None = None,
        cache_dir: str | Path | None = None,
        cache_limit: int | str | None = None,
    ) -> None:
        access = token, storage_options, choose_cache(cache_dir, cache_limit)
        opened = open_dataset(
            DatasetLocation(repo_id, root, revision, None, force_cache_sync, *access),
            SampleOptions(
                episodes=episodes,
                episode_filter=episode_filter,
                camera_keys=camera_keys,
                delta_timestamps=delta_timestamps,
                tolerance_s=tolerance_s,
                return_uint8=return_uint8,
                depth_output_unit=depth_output_unit,
                image_transforms=image_transforms,
                resize=resize,
            ),
        )
        videos = arguments.truth(download_videos, "download_videos") and bool(opened.spec.videos)
        self.repo_id: str = opened.meta.repo_id
        self.meta: LeRobotDatasetMetadata = opened.meta
        self.delta_timestamps: Mapping[str, Sequence[float]] | None = delta_timestamps
        self.tolerance_s: float = tolerance_s
        self.writer: DatasetWriter | None = None
        self._subset = episodes is not None or episode_filter is not None
        self.reader: MapReader | None = MapReader(
            download_from_hub(opened, videos=videos, token=token, force=force_cache_sync),
            row_cache_bytes=parse_bytes(row_cache_bytes),
            frame_cache_bytes=parse_bytes(frame_cache_bytes),
            video_backend=video_backend,
        )

    @classmethod
    def create(
        cls,
        repo_id: str,
        fps: int,
        features: Mapping[str, Any],
        root: str | Path | None = None,
        robot_type: str | None = None,
        use_videos: bool = True,
        *,
        rgb_encoder: VideoEncoderConfig | None = None,
        depth_encoder: DepthEncoderConfig | None = None,
        encoder_queue_maxsize: int = config.ENCODER_QUEUE_FRAMES,
        chunks_size: int = config.CHUNKS_SIZE,
        data_files_size_in_mb: float = config.DATA_FILES_SIZE_IN_MB,
        video_files_size_in_mb: float = config.VIDEO_FILES_SIZE_IN_MB,
    ) -> LeRobotDataset:
        """Return a new dataset to record into; `robostream.write.create_writer` has the details."""
        name = arguments.dataset_name(repo_id)
        folder = root or explicit_root(name) or config.lerobot_home() / name
        writer = create_writer(
            folder,
            fps=fps,
            features=features,
            robot_type=robot_type,
            use_videos=use_videos,
            chunks_size=chunks_size,
            data_files_size_in_mb=data_files_size_in_mb,
            video_files_size_in_mb=video_files_size_in_mb,
            encoder=rgb_encoder,
            depth_encoder=depth_encoder,
            queue_frames=encoder_queue_maxsize,
        )
        return cls._recording(repo_id, writer)

    @classmethod
    def resume(
        cls,
        repo_id: str,
        root: str | Path,
        *,
        rgb_encoder: VideoEncoderConfig | None = None,
        depth_encoder: DepthEncoderConfig | None = None,
        encoder_queue_maxsize: int = config.ENCODER_QUEUE_FRAMES,
    ) -> LeRobotDataset:
        """Return a dataset to add episodes to, also after its recorder was killed."""
        arguments.dataset_name(repo_id)
        writer = resume_writer(
            root,
            encoder=rgb_encoder,
            depth_encoder=depth_encoder,
            queue_frames=encoder_queue_maxsize,
        )
        return cls._recording(repo_id, writer)

    @classmethod
    def _recording(cls, repo_id: str, writer: DatasetWriter) -> LeRobotDataset:
        dataset = cls.__new__(cls)
        dataset.repo_id = repo_id
        dataset.meta = LeRobotDatasetMetadata(repo_id, writer.root)
        dataset.delta_timestamps = None
        dataset.tolerance_s = config.TOLERANCE_S
        dataset.writer = writer
        dataset.reader = None
        dataset._subset = False
        return dataset

    @property
    def episodes(self) -> list[int] | None:
        """The selected episodes, or None if all are read."""
        return self._reading().selection.episodes.tolist() if self._subset else None

    @property
    def num_frames(self) -> int:
        """Frames of the selected episodes, or recorded so far."""
        if self.writer is not None:
            return self.writer.num_frames
        return self._reading().selection.num_frames

    @property
    def num_episodes(self) -> int:
        """Number of selected episodes, or of episodes recorded so far."""
        if self.writer is not None:
            return self.writer.num_episodes
        return len(self._reading().selection.episodes)

    @property
    def absolute_to_relative_idx(self) -> AbsoluteToRelative | None:
        """The item index of each frame's dataset-wide index; None if all episodes are read."""
        return AbsoluteToRelative(self._reading().selection) if self._subset else None

    @property
    def depth_output_unit(self) -> str:
        """The unit of depth cameras."""
        return self._reading().spec.depth_output_unit

    @property
    def image_transforms(self) -> ImageTransforms | None:
        """The transforms applied to each camera of a sample."""
        return self._reading().spec.image_transforms

    def __len__(self) -> int:
        return self.num_frames

    def __getitem__(self, item: int | slice) -> Any:
        """Return a sample, or a list of samples for a slice."""
        reader = self._reading()
        if isinstance(item, slice):
            return [reader.item(number) for number in range(*item.indices(len(self)))]
        return reader.item(item)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield all items; iteration by index would take any IndexError for the end."""
        reader = self._reading()
        return (reader.item(number) for number in range(reader.selection.num_frames))

    def __repr__(self) -> str:
        mode = "reading" if self.writer is None else "recording"
        return (
            f"LeRobotDataset({self.repo_id!r}, {mode}, episodes={self.num_episodes}, "
            f"frames={self.num_frames}, fps={self.fps}, features={list(self.features)})"
        )

    def get_raw_item(self, item: int) -> dict[str, Any]:
        """Return an item's row, without videos, windows and transforms."""
        return self._reading().row(item)

    def select_columns(self, columns: str | Sequence[str]) -> dict[str, Any]:
        """Return whole columns of the selected frames by name; decodes no video."""
        names = [columns] if isinstance(columns, str) else arguments.names(columns, "columns")
        return self._reading().columns(names)

    def compute_stats(self, *, images: bool = False) -> Stats:
        """Return the statistics of the selected frames in the form of `meta.stats`.

        They are computed from the rows: min, max, mean, std and quantiles are exact. No video is
        decoded, unless `images` asks for the statistics of cameras, which takes far longer: then
        the frames that LeRobot's recorder samples are decoded.
        """
        return self._reading().compute_stats(images=arguments.truth(images, "images"))

    def set_image_transforms(self, image_transforms: ImageTransforms | None) -> None:
        """Replace the transforms of each camera."""
        self._reading().set_image_transforms(image_transforms)

    def clear_image_transforms(self) -> None:
        """Remove the transforms of all cameras."""
        self._reading().set_image_transforms(None)

    def add_frame(self, frame: Mapping[str, Any]) -> None:
        """Add a frame, with its `task`, to the episode being recorded."""
        self._recorder().add_frame(frame)

    def save_episode(self) -> None:
        """Save the added frames as an episode; when this returns, it survives any crash."""
        self._recorder().save_episode()

    def clear_episode_buffer(self) -> None:
        """Discard the frames added since the last episode."""
        self._recorder().clear_episode_buffer()

    def has_pending_frames(self) -> bool:
        """Return whether frames were added that are not saved yet."""
        return self.writer is not None and self.writer.has_pending_frames()

    def finalize(self) -> None:
        """End the recording; the dataset can then be read."""
        if self.writer is not None:
            self.writer.finalize()
            self.writer = None
            self.meta = LeRobotDatasetMetadata(self.repo_id, self.root)

    def push_to_hub(
        self,
        branch: str | None = None,
        tags: Sequence[str] | None = None,
        license: str | None = "apache-2.0",
        tag_version: bool = True,
        push_videos: bool = True,
        private: bool | None = None,
        allow_patterns: list[str] | str | None = None,
        *,
        token: str | None = None,
    ) -> None:
        """Upload the whole dataset to `repo_id` on the Hub, which is created if it is missing.

        Call it again to continue an interrupted upload.

        Args:
            branch: The branch to commit to, created if it is missing; None for main.
            tags: Tags of the dataset card, besides "LeRobot".
            license: The license on the card.
            tag_version: Whether to tag the upload with the format's version, such as "v3.0", by
                which readers find it. A tag of that name is moved.
            push_videos: Whether to upload videos/.
            private: Whether a new repo is private; None for the owner's default.
            allow_patterns: Patterns of the files to upload; None for all.
            token: Hub token; by default the one that `hf auth login` stored.
        """
        if self.writer is not None:
            raise ModeError(f"{self.repo_id} is being recorded; call finalize() before pushing it")
        push_dataset(
            self.meta,
            branch=branch,
            tags=tags,
            license=license,
            tag_version=arguments.truth(tag_version, "tag_version"),
            push_videos=arguments.truth(push_videos, "push_videos"),
            private=private,
            allow_patterns=allow_patterns,
            token=token,
        )

    @property
    def hf_dataset(self) -> NoReturn:
        """LeRobot's table of rows, which does not exist here: the error names what to use."""
        raise AttributeError(
            "LeRobotDataset has no hf_dataset: rows are read on demand. Use select_columns([...]) "
            "for whole columns, get_raw_item(i) for a row, and meta.episodes for the episodes."
        )

    def __getstate__(self) -> Any:
        is_read = self.writer is None and self.reader is not None
        return for_pickle(self.__dict__, self.image_transforms if is_read else None)

    def __enter__(self) -> LeRobotDataset:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self.writer is not None and kind is not None:
            self.writer.clear_episode_buffer()
        self.finalize()

    def _recorder(self) -> DatasetWriter:
        if self.writer is None:
            raise ModeError(
                f"{self.repo_id} is open for reading; open it with LeRobotDataset.create(...) or "
                "LeRobotDataset.resume(...) to record"
            )
        return self.writer

    def _reading(self) -> MapReader:
        if self.writer is not None:
            raise ModeError(
                f"{self.repo_id} is being recorded and cannot be read yet; call finalize() first"
            )
        if self.reader is None:  # recorded by this object and finalized since
            self.reader = LeRobotDataset(self.repo_id, self.root).reader
            assert self.reader is not None
        return self.reader
