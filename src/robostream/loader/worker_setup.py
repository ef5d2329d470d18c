# SPDX-License-Identifier: Apache-2.0
"""From a stream and its machine to what workers are given: layout, budgets, memory."""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch.utils.data import get_worker_info

from robostream import arguments, config
from robostream.assemble import (
    ArrayLayout,
    ImageTransforms,
    OpenedDataset,
    SampleLayout,
    probe_cameras,
)
from robostream.batches import SharedFrameLayout, WorkerBudgets, kept_generators, transform_pictures
from robostream.byte_sizes import format_bytes, parse_bytes
from robostream.device import create_memory, free_gpu_memory
from robostream.errors import SelectionError, StorageError
from robostream.loader.budgets import FrameBudget, choose_frame_budget, needed_bytes, shared_shape
from robostream.loader.frame_file import check_folder, open_frame_file
from robostream.loader.machine import local_ranks, open_files_share, usable_memory
from robostream.plan import Cut, EpochPlan, rank_lanes

logger = logging.getLogger(__name__)

# With less than this of what lanes need, what is decoded ahead would be gone when it is due.
_LEAST_SHARE = 0.5
# For which limits and needs this process has said that memory is too little.
_WARNED: set[tuple[ResourceLimits, int]] = set()


@dataclass(frozen=True, slots=True)
class ResourceLimits:
    """What a user allows a rank.

    Attributes:
        frame_cache_bytes: Memory for decoded pictures: bytes, a text such as "2GiB", or "auto".
        frame_cache_dir: A folder to keep the decoded pictures of the whole selection in.
        max_files: Video files held open per process; None for a default.
    """

    frame_cache_bytes: int | str
    frame_cache_dir: str | Path | None
    max_files: int | None

    def __post_init__(self) -> None:
        if self.frame_cache_bytes != "auto":
            parse_bytes(self.frame_cache_bytes)
        if self.max_files is not None:
            arguments.whole_number(self.max_files, "video_decoder_cache_size", least=1)
        if self.frame_cache_dir is not None:
            check_folder(self.frame_cache_dir)


@dataclass(frozen=True, slots=True)
class WorkerSetup:
    """What the workers of a rank are given.

    Attributes:
        layout: How samples lie in a batch, after the user's transform.
        budgets: What each worker may use.
        shared: Where all decoded pictures of the selection are kept; None if they are not.
        frames: The memory for decoded pictures of the rank, and why.
    """

    layout: SampleLayout
    budgets: WorkerBudgets
    shared: SharedFrameLayout | None
    frames: FrameBudget


def choose_setup(
    layout: SampleLayout,
    plan: EpochPlan,
    cut: Cut,
    limits: ResourceLimits,
    *,
    num_workers: int,
    gpu: str | None = None,
) -> WorkerSetup:
    """Return what each of the rank's `num_workers` workers is given.

    Pictures that a GPU decodes are kept in its memory; then nothing is shared by workers.
    """
    ranks = 1 if gpu else local_ranks(cut.world_size)
    on_disk = limits.frame_cache_dir is not None and gpu is None
    shape = None if gpu else shared_shape(layout, layout.dataset.selection, on_disk=on_disk)
    lanes = len(rank_lanes(cut, plan.lanes))
    needed = needed_bytes(plan, layout, lanes, decodes_whole_gops=gpu is not None)
    frames = choose_frame_budget(
        limits.frame_cache_bytes,
        shape,
        sum(needed),
        memory=free_gpu_memory(gpu) if gpu else usable_memory(),
        ranks=ranks,
        on_disk=on_disk,
    )
    logger.info(
        "decoded pictures may take %s on this rank (%s), shared by %d workers",
        format_bytes(frames.nbytes),
        frames.reason,
        num_workers,
    )
    if not frames.keeps_all and frames.nbytes < sum(needed):
        _warn_of_little_memory(layout, limits, frames, sum(needed))
    max_files = limits.max_files or config.VIDEO_DECODER_CACHE_SIZE
    budgets = WorkerBudgets(
        frame_bytes=0 if frames.keeps_all else frames.nbytes // num_workers,
        row_bytes=config.ROW_CACHE_BYTES // num_workers,
        max_files=min(max_files, open_files_share()),
        max_decodings=_decoders(layout, lanes, num_workers),
        runs_ahead=frames.keeps_all or frames.nbytes >= _LEAST_SHARE * needed.lanes,
        gpu=gpu,
    )
    return WorkerSetup(layout, budgets, shape if frames.keeps_all else None, frames)


def _warn_of_little_memory(
    layout: SampleLayout, limits: ResourceLimits, frames: FrameBudget, needed: int
) -> None:
    """Log, once in a process, what too little memory for decoded pictures costs."""
    worker = get_worker_info()  # of a plain DataLoader: one speaks for all
    if (limits, needed) in _WARNED or (worker is not None and worker.id > 0):
        return
    _WARNED.add((limits, needed))
    videos = layout.spec.videos
    gop = max(camera.gop_frames for camera in layout.cameras if camera.key in videos)
    logger.warning(
        "decoded pictures may take %s on this rank (%s), and this order needs %s to decode each "
        "picture once. With less, pictures are decoded again: in GOPs of %d frames up to about "
        "%.3g pictures for each one that is delivered, and loading is slower by as much. Raise "
        "frame_cache_bytes, set frame_cache_dir, lower episode_pool_size, use resize or fewer "
        "cameras, or recode the videos with shorter GOPs (robostream recode).",
        format_bytes(frames.nbytes),
        frames.reason,
        format_bytes(needed),
        gop,
        (gop + 1) / 2,
    )


def open_kept_frames(outfit: WorkerSetup, limits: ResourceLimits) -> Callable[[], int] | None:
    """Return what returns a descriptor of the memory, or file, that keeps all pictures.

    None if they are not kept. The file is opened at once, which may take a while.
    """
    if outfit.shared is None:
        return None
    if limits.frame_cache_dir is None:
        return functools.partial(create_memory, outfit.shared.nbytes)
    folder = Path(limits.frame_cache_dir).expanduser()
    versions = _video_versions(outfit.layout.dataset, outfit.shared)
    fd = open_frame_file(
        folder, outfit.shared, json.dumps([outfit.layout.meta.fingerprint, versions])
    )
    return lambda: fd


def _video_versions(dataset: OpenedDataset, shape: SharedFrameLayout) -> list[tuple[str, int, str]]:
    """Return identity, size and version of the videos whose pictures are kept.

    Two recordings may be alike in all that a fingerprint knows, and have other pictures.
    """
    meta, door = dataset.meta, dataset.file_opener()
    cameras = [key for key, nbytes in zip(shape.cameras, shape.slot_bytes, strict=True) if nbytes]
    episodes = shape.episodes.tolist()
    files = {meta.get_video_file_path(e, key).as_posix() for e in episodes for key in cameras}

    def version(file: str) -> tuple[str, int, str]:
        try:
            source = door.open(file)
            return source.identity, source.size(), source.version()
        except StorageError:  # said when it is to be decoded
            return file, -1, ""

    with ThreadPoolExecutor(config.WARM_REQUESTS) as pool:
        return list(pool.map(version, sorted(files)))


def _decoders(layout: SampleLayout, lanes: int, num_workers: int) -> int:
    """Return how many decoders of a worker may wait in the middle of a long GOP.

    One for each lane and camera, and some where episodes meet; fewer where pictures are so large
    that they would take more than their share of memory.
    """
    videos = layout.spec.videos
    wanted = -(-lanes * len(videos) * 3 // (2 * num_workers))
    sizes = (camera.decoded_bytes for camera in layout.cameras if camera.key in videos)
    largest = max(sizes, default=0)
    most = config.DECODER_BYTES // (config.FRAMES_PER_DECODER * largest + (1 << 20))
    return max(1, min(wanted, most))


def choose_layout(dataset: OpenedDataset) -> SampleLayout:
    """Return how samples lie in a batch.

    Pictures have the size that the first selected episode's have; what the user's transform makes
    of them is tried on black ones.
    """
    layout = SampleLayout(dataset, probed=probe_cameras(dataset))
    transform = dataset.spec.image_transforms
    if transform is None:
        return layout
    found: dict[str, ArrayLayout] = {}
    for number, camera in enumerate(layout.cameras):
        if camera.is_transformed:
            found[camera.key] = _probe(transform, camera.shape, camera.dtype, number, camera.key)
    return layout.after_transform(found)


def _probe(
    transform: ImageTransforms,
    shape: tuple[int, ...],
    dtype: np.typing.DTypeLike,
    number: int,
    key: str,
) -> ArrayLayout:
    try:
        with kept_generators(transform):
            result = transform_pictures(transform, np.zeros(shape, dtype), key=(0, 0, 0, number))
    except SelectionError:
        raise
    except Exception as error:
        raise SelectionError(
            f"image_transforms failed on a black picture of {key}, shape {shape}, type "
            f"{np.dtype(dtype)}: {type(error).__name__}: {error}"
        ) from error
    return result.shape, result.dtype
