# SPDX-License-Identifier: Apache-2.0
"""A loader's running pool: who builds its batches, in which memory, and how they become tensors.

Workers share all decoded frames of a selection, if these fit, in memory or in a file on a fast
disk, which serves all ranks of a machine. Its name identifies its content and the boot of the
machine: processes see each other's writes to a mapped file in order, even after a kill, but only
until the machine restarts. So a file of an earlier boot is not used.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from robostream import arguments, config
from robostream.assemble import BatchLayout, SourceLayout, find_yuv_cameras
from robostream.batches import WorkerBudgets
from robostream.byte_sizes import format_bytes
from robostream.decode import SharedFrameLayout
from robostream.device import (
    COPIES_IN_FLIGHT,
    BatchSlots,
    HostTransfer,
    UploadThread,
    choose_device,
    choose_gpu,
    choose_transfer,
    count_workers,
    create_memory,
    format_batch,
    map_memory,
    open_device_batches,
    pack,
    total_gpu_memory,
)
from robostream.errors import SelectionError, StorageError
from robostream.loader.cursor import StreamCursor
from robostream.loader.position import cannot_be_sent, locked
from robostream.loader.resources import (
    FrameBudget,
    choose_depth,
    local_ranks,
    share_of_cores,
    whole_memory,
)
from robostream.loader.stats import LoaderStats
from robostream.plan import Cut, WorkerShard
from robostream.storage import make_private_folder, open_private
from robostream.workers import InProcessPool, Worker, WorkerConfig, WorkerPool, signals_held

_FORMAT = "checksums"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class PoolOptions:
    """What a loader asks of its pool."""

    batch_size: int  # the most samples a batch ever has
    batch_bytes: int  # of a batch's arrays, as workers build it
    num_workers: int  # 0 to build batches in this process
    depth: int  # how many batches are built ahead
    device: torch.device | None  # gets the batches; None for the memory they are built in
    yuv_cameras: Collection[str]  # cameras whose frames travel there as packed YUV 4:2:0
    gpu: str | None  # the GPU that decodes, if one does: the device
    pin_memory: bool  # whether batches are copied to page-locked memory

    @property
    def num_slots(self) -> int:
        """How many batches there is room for."""
        # A slot in RAM takes memory once it is written to; on a GPU it takes it at once.
        iterators = 2 if self.gpu else config.LIVE_ITERATORS
        if self.device is None:
            return iterators * self.depth + config.HELD_BATCHES
        # The consumer holds none. One for each iterator is on the way to the device.
        return iterators * (self.depth + 1) + COPIES_IN_FLIGHT


def choose_options(
    layout: BatchLayout,
    cut: Cut,
    *,
    num_samples: int,
    decode_device: str,
    device: str | torch.device | None,
    num_workers: int | None,
    prefetch_factor: int | None,
    pin_memory: bool,
) -> PoolOptions:
    """Return what a loader asks of its pool, from the user's choices. Opens videos.

    `num_samples` is how many samples this rank delivers in an epoch.
    """
    pin_memory = arguments.truth(pin_memory, "pin_memory")
    target, gpu, yuv_cameras = choose_device(device), None, list[str]()
    if target is not None or decode_device != "cpu":
        yuv_cameras = find_yuv_cameras(layout)
    if decode_device != "cpu":
        gpu = choose_gpu(decode_device, target, layout.in_yuv(yuv_cameras))
    if gpu is not None:
        target = torch.device(gpu)
    elif target is None:
        yuv_cameras = []
    batch_size = min(cut.batch_size, num_samples)
    batch_bytes = batch_size * layout.in_yuv(yuv_cameras).nbytes
    if gpu is None:
        _check_memory(cut.batch_size, batch_size, batch_bytes)
    if num_workers is None:
        num_workers = share_of_cores(local_ranks(cut.world_size))
        if gpu is not None:
            num_workers = count_workers(num_workers, total_gpu_memory(gpu))
    num_workers = arguments.whole_number(num_workers, "num_workers", least=0)
    if prefetch_factor is None:
        # In RAM a slot takes memory once it is written to, on a GPU those of two iterators do.
        nbytes = batch_bytes * (2 if gpu else 1)
        depth = choose_depth(cut.batch_size, nbytes, num_workers)
    else:
        depth = arguments.whole_number(prefetch_factor, "prefetch_factor", least=1)
    depth = depth if num_workers else 1
    return PoolOptions(
        batch_size, batch_bytes, num_workers, depth, target, yuv_cameras, gpu, pin_memory
    )


def _check_memory(asked: int, num_samples: int, batch_bytes: int) -> None:
    """Raise SelectionError if a batch is larger than the machine's memory.

    How much memory is free now means little: the system evicts cached files. Torch itself reports a
    lack of GPU memory.
    """
    memory = whole_memory()
    if batch_bytes > memory:
        raise SelectionError(
            f"batch_size={asked}: a batch of {num_samples} samples takes "
            f"{format_bytes(batch_bytes)}, and there are {format_bytes(memory)} "
            f"of memory. Choose at most {memory * num_samples // batch_bytes}, fewer or smaller "
            "frames (camera_keys, resize), or return_uint8=True."
        )


class RunningPool(NamedTuple):
    """The pool that builds batches, their slots, and what makes tensors of them."""

    pool: WorkerPool | InProcessPool
    slots: BatchSlots
    transfer: HostTransfer | UploadThread
    frames: FrameBudget  # chosen when the pool started
    depth: int  # how many batches are built ahead
    texts: list[str]  # the keys of texts in a batch


def start_pool(source: StreamCursor, options: PoolOptions, stats: LoaderStats) -> RunningPool:
    """Return a running pool for the batches of a stream."""
    frames, budgets = source.choose_resources(max(options.num_workers, 1), options.gpu)
    shared, folder = budgets.shared, source.limits.frame_cache_dir
    files = []
    if shared is not None and folder is not None:
        files.append(_open_frame_file(source.layout.sources, shared, folder))
    # An interrupt would leave processes and memory that nobody ends.
    with signals_held():
        fds = [stats.share_counters(frames.lacking_bytes), *files]
        try:
            if shared is not None and not files:
                fds.append(create_memory(shared.nbytes))
            return _start(options, source.layout, frames, budgets, stats, fds)
        finally:
            for fd in fds:
                os.close(fd)


def _start(
    options: PoolOptions,
    layout: BatchLayout,
    frames: FrameBudget,
    budgets: WorkerBudgets,
    stats: LoaderStats,
    fds: list[int],
) -> RunningPool:
    """Return a running pool; `fds` are of the counters and of decoded frames that workers share."""
    layout, on_device = layout.in_yuv(options.yuv_cameras), None
    if options.gpu:
        yuv = {c.key: layout.arrays[c.key] for c in layout.cameras if c.is_yuv}
        device = str(options.device)
        on_device = open_device_batches(yuv, options.batch_size, options.num_slots, device)
    elsewhere = on_device.keys if on_device else ()
    arrays = {key: array for key, array in layout.arrays.items() if key not in elsewhere}
    batches = format_batch(arrays, options.batch_size)
    slots = BatchSlots(batches, options.num_slots, config.HELD_BATCHES)
    transfer = choose_transfer(
        options.device, layout.cameras, slots, on_device, pin_memory=options.pin_memory
    )
    num_workers, cameras = options.num_workers, len(layout.cameras)
    shared = on_device.share() if on_device and num_workers else None
    worker_config = WorkerConfig(layout, batches, budgets, shared)
    pool: WorkerPool | InProcessPool
    if num_workers:
        packed = _pack(worker_config)
        shards = [WorkerShard(worker, num_workers, cameras) for worker in range(num_workers)]
        try:
            pool = WorkerPool(shards, [packed, slots.fd, *fds])
        finally:
            os.close(packed)
    else:
        worker = Worker(
            worker_config,
            WorkerShard(0, 1, cameras),
            batches=slots.memory,
            counters=stats.counters[0],
            frames=map_memory(fds[1]) if len(fds) > 1 else None,
            on_device=on_device,
        )
        pool = InProcessPool(worker)
    return RunningPool(pool, slots, transfer, frames, options.depth, layout.texts)


def _pack(worker_config: WorkerConfig) -> int:
    try:
        return pack(worker_config)
    except Exception as error:  # a user's object may raise anything here
        transforms = worker_config.layout.transforms
        if not transforms:
            raise
        raise cannot_be_sent(transforms[0], error) from error


def _video_versions(source: SourceLayout, shared: SharedFrameLayout) -> list[tuple[str, int, str]]:
    """Return identity, size and version of a dataset's videos whose frames are kept.

    Two recordings may have the same fingerprint and different frames.
    """
    meta, opener = source.dataset.meta, source.dataset.file_opener()
    kept = [c for c, nbytes in zip(source.cameras, shared.slot_bytes, strict=True) if c and nbytes]
    cameras = [camera.key for camera in kept if camera.key in source.dataset.spec.videos]
    episodes = source.dataset.selection.episodes.tolist()
    files = {meta.get_video_file_path(e, key).as_posix() for e in episodes for key in cameras}

    def version(file: str) -> tuple[str, int, str]:
        try:
            source = opener.open(file)
            return source.identity, source.size(), source.version()
        except StorageError:  # decoding it reports the error
            return file, -1, ""

    with ThreadPoolExecutor(config.WARM_REQUESTS) as pool:
        return list(pool.map(version, sorted(files)))


def _open_frame_file(
    sources: Sequence[SourceLayout], shared: SharedFrameLayout, folder: str | Path
) -> int:
    """Return a descriptor of the file for all decoded frames, created if missing.

    Its space is reserved: a disk that fills up later would kill the processes that write to the
    file. Takes a while, because the versions of all videos are part of its name.
    """
    folder = Path(folder).expanduser()
    content: list[Any] = []
    for source in sources:
        content += source.dataset.meta.fingerprint, _video_versions(source, shared)
    digest = hashlib.sha256(json.dumps(content).encode())
    digest.update(shared.episodes.tobytes())
    digest.update(repr((shared.cameras, shared.sizes, shared.slot_bytes, _FORMAT)).encode())
    name = f"robostream-frames-{digest.hexdigest()[:24]}"
    boot = "unknown"
    with contextlib.suppress(OSError):
        boot = _BOOT_ID.read_text().strip()[:8]
    path = folder / f"{name}-{boot}"
    try:
        make_private_folder(folder)
        fd = open_private(path, os.O_RDWR | os.O_CREAT, may_share=False)
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
        raise _cannot_open(folder, shared.nbytes, error) from error
    try:
        with locked(fd):
            if os.fstat(fd).st_size != shared.nbytes:
                _reserve(fd, shared.nbytes, path)
            for other in folder.glob(f"{name}-*"):
                if other != path:
                    other.unlink(missing_ok=True)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _reserve(fd: int, nbytes: int, path: Path) -> None:
    try:
        os.posix_fallocate(fd, 0, nbytes)
    except OSError as error:
        os.ftruncate(fd, 0)
        path.unlink(missing_ok=True)
        raise _cannot_open(path.parent, nbytes, error) from error


def _cannot_open(folder: Path, nbytes: int, error: Exception) -> SelectionError:
    reason = error.strerror if isinstance(error, OSError) else error
    return SelectionError(
        f"frame_cache_dir={str(folder)!r}: {reason}; the decoded frames of this selection take "
        f"{format_bytes(nbytes)}. Choose another disk, fewer episodes or cameras, or leave "
        "frame_cache_dir out."
    )
