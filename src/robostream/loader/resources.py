# SPDX-License-Identifier: Apache-2.0
"""Resources: the cores, memory and open files of this process, and how its workers share them."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import resource
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch.utils.data import get_worker_info

from robostream import arguments, config
from robostream.assemble import BatchLayout
from robostream.batches import WorkerBudgets
from robostream.byte_sizes import format_bytes, parse_bytes
from robostream.decode import SharedFrameLayout
from robostream.device import free_gpu_memory
from robostream.errors import SelectionError
from robostream.plan import CameraFrames, Cut, EpochPlan, FrameMemory, frame_memory, rank_lanes

logger = logging.getLogger(__name__)

_CGROUP = Path("/sys/fs/cgroup")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# The variables in which launchers give the number of processes on this machine.
_LOCAL_RANKS = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS")
# "auto" takes at most this fraction of the memory left to all ranks of the machine.
_FRAME_CACHE_DIVISOR = 4
# With less than this share of what lanes need, frames decoded ahead are evicted before their use.
_LEAST_SHARE = 0.5
# Limits and needs for which this process has warned of too little memory.
_WARNED: set[tuple[ResourceLimits, int]] = set()


@dataclass(frozen=True, slots=True)
class ResourceLimits:
    """The limits that a user sets for a rank."""

    frame_cache_bytes: int | str  # memory for decoded frames: bytes, a text or "auto"
    frame_cache_dir: str | Path | None  # for the decoded frames of the whole selection
    max_files: int | None  # video files held open per process; None for a default

    def __post_init__(self) -> None:
        if self.frame_cache_bytes != "auto":
            parse_bytes(self.frame_cache_bytes)
        if self.max_files is not None:
            arguments.whole_number(self.max_files, "video_decoder_cache_size", least=1)
        if self.frame_cache_dir is not None:
            _check_folder(self.frame_cache_dir)


@dataclass(frozen=True, slots=True)
class FrameBudget:
    """Memory for the decoded frames of a rank."""

    nbytes: int
    keeps_all: bool  # whether it holds all frames of the selection, which then stay
    reason: str  # why this much, for the log
    lacking_bytes: int = 0  # how much more would let every frame be decoded once


def choose_resources(
    layout: BatchLayout,
    plan: EpochPlan,
    cut: Cut,
    limits: ResourceLimits,
    *,
    num_workers: int,
    gpu: str | None = None,
) -> tuple[FrameBudget, WorkerBudgets]:
    """Return the memory for decoded frames of all workers of a rank, and the limits of each.

    Frames that a GPU decodes stay in its memory; workers then share none.
    """
    ranks = 1 if gpu else local_ranks(cut.world_size)
    shared = None if gpu else shared_layout(layout, on_disk=limits.frame_cache_dir is not None)
    lanes = len(rank_lanes(cut, plan.lanes))
    needed = needed_bytes(plan, layout, lanes, decodes_whole_gops=gpu is not None)
    frames = _choose_frame_budget(
        limits.frame_cache_bytes,
        shared,
        sum(needed),
        memory=free_gpu_memory(gpu) if gpu else usable_memory(),
        ranks=ranks,
    )
    logger.info(
        "decoded frames may take %s on this rank (%s), shared by its workers (%d)",
        format_bytes(frames.nbytes),
        frames.reason,
        num_workers,
    )
    if frames.lacking_bytes:
        _warn_of_little_memory(layout, limits, frames, sum(needed))
    max_files = limits.max_files or config.VIDEO_DECODER_CACHE_SIZE
    budgets = WorkerBudgets(
        frame_bytes=0 if frames.keeps_all else frames.nbytes // num_workers,
        row_bytes=config.ROW_CACHE_BYTES // num_workers,
        max_files=min(max_files, open_files_share()),
        max_decodings=_count_decoders(layout, lanes, num_workers),
        runs_ahead=frames.keeps_all or frames.nbytes >= _LEAST_SHARE * needed.lanes,
        gpu=gpu,
        shared=shared if frames.keeps_all else None,
    )
    return frames, budgets


def _choose_frame_budget(
    asked: int | str,
    shared: SharedFrameLayout | None,
    needed: int,
    *,
    memory: int,
    ranks: int,
) -> FrameBudget:
    """Return the memory for decoded frames, of what `ranks` ranks may use together. Pure.

    With `needed` bytes every frame is decoded once. `shared` is the layout of the decoded frames of
    the whole selection.
    """
    whole = shared.nbytes if shared is not None and any(shared.slot_bytes) else 0
    if shared is not None and shared.has_checksums and whole:
        return FrameBudget(0, True, f"{format_bytes(whole)} of them are kept on disk")
    if asked != "auto":
        nbytes = parse_bytes(asked)
        keeps_all = 0 < whole <= nbytes
        lacking = 0 if keeps_all else max(0, needed - nbytes)
        return FrameBudget(nbytes, keeps_all, "as asked for", lacking)
    most = memory // _FRAME_CACHE_DIVISOR // ranks
    if shared is not None and whole <= most:
        return FrameBudget(whole, whole > 0, "all decoded frames of the selection fit")
    if needed <= most:
        return FrameBudget(needed, False, "what the lanes need")
    reason = f"a quarter of the memory left to {ranks} ranks; the lanes would need "
    return FrameBudget(most, False, reason + format_bytes(needed), needed - most)


def shared_layout(layout: BatchLayout, *, on_disk: bool) -> SharedFrameLayout:
    """Return the layout of the decoded frames of a whole selection. Pure."""
    videos, cameras = layout.videos, layout.cameras
    episodes = [s.first_episode + s.dataset.selection.episodes for s in layout.sources]
    lengths = np.concatenate([source.dataset.selection.lengths for source in layout.sources])
    return SharedFrameLayout(
        episodes=np.concatenate(episodes),
        cameras=tuple(camera.key for camera in cameras),
        starts=np.concatenate([[0], np.cumsum(lengths)]),
        sizes=tuple((camera.stack[3], camera.stack[2]) for camera in cameras),
        slot_bytes=tuple(
            -(-camera.cached_bytes // 64) * 64 if camera.key in videos else 0 for camera in cameras
        ),
        has_checksums=on_disk,
    )


def needed_bytes(
    plan: EpochPlan, layout: BatchLayout, lanes: int, *, decodes_whole_gops: bool
) -> FrameMemory:
    """Return the memory that a rank with so many lanes needs for decoded frames. Pure."""
    cameras = (
        CameraFrames(
            frame_bytes=camera.cached_bytes,
            gop_frames=camera.gop_frames,
            window_frames=layout.window_frames(number),
            has_long_gops=camera.has_long_gops,
        )
        for number, camera in enumerate(layout.cameras)
        if camera.key in layout.videos
    )
    return frame_memory(plan, lanes, cameras, decodes_whole_gops=decodes_whole_gops)


def choose_depth(batch_size: int, batch_bytes: int, num_workers: int) -> int:
    """Return how many batches to build ahead within the memory for them, at least two. Pure.

    With fewer, workers wait more often for the slowest of them.
    """
    memory = max(config.BATCH_MEMORY_BYTES, num_workers * config.BATCH_MEMORY_PER_WORKER_BYTES)
    room = memory // max(batch_bytes, 1) - 1
    samples = max(config.PREFETCH_SAMPLES, num_workers * config.PREFETCH_SAMPLES_PER_WORKER)
    wanted = max(config.PREFETCH_BATCHES, -(-samples // batch_size))
    return min(max(room, 2), wanted)


def local_ranks(world_size: int) -> int:
    """Return how many ranks share this machine; at most the world size.

    Slurm lists the tasks of a step on each node. It gives the number asked for per node only if
    someone asked, and that need not be how many there are.
    """
    for name in _LOCAL_RANKS:
        text = os.environ.get(name, "")
        if text.isdigit() and int(text) > 0:
            return min(int(text), world_size)
    return min(len(os.environ.get("SLURM_GTIDS", "0").split(",")), world_size)


def share_of_cores(ranks: int) -> int:
    """Return how many cores this rank may use, if `ranks` ranks share the machine."""
    cores = os.sched_getaffinity(os.getpid())
    allowed = len(cores)
    quota = _read_cgroup("cpu.max").split()  # microseconds of work in a period, and the period
    if len(quota) == 2 and all(map(str.isdigit, quota)):
        allowed = min(allowed, max(1, math.ceil(int(quota[0]) / int(quota[1]))))
    return allowed if _is_split(cores) else max(1, allowed // ranks)


def usable_memory() -> int:
    """Return how many bytes the machine, this process's cgroup and its `ulimit -v` have left."""
    used_pages = int(Path("/proc/self/statm").read_text().split()[0])
    unused_addresses = max(0, _address_space() - used_pages * _PAGE_BYTES)
    lines = Path("/proc/meminfo").read_text().splitlines()
    unused_kib = (int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    available = min(next(unused_kib, whole_memory() >> 10) << 10, unused_addresses)
    limit, used = _cgroup_bytes("memory.max"), _cgroup_bytes("memory.current")
    if limit is not None:
        available = min(available, max(0, limit - (used or 0)))
    return available


def whole_memory() -> int:
    """Return how many bytes the machine, this process's cgroup or its `ulimit -v` has in all."""
    physical = os.sysconf("SC_PHYS_PAGES") * _PAGE_BYTES
    return min(physical, _address_space(), _cgroup_bytes("memory.max") or physical)


def open_files_share() -> int:
    """Return how many files a reader may hold open: a quarter of the process's limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 20 if soft == resource.RLIM_INFINITY else max(8, soft // 4)


def _check_folder(folder: str | Path) -> None:
    """Raise SelectionError if there is a file where the folder, or one above it, should be."""
    arguments.path(folder, "frame_cache_dir")
    try:
        path = Path(folder).expanduser()
        nearest = next((p for p in (path, *path.parents) if os.path.lexists(p)), path)
        fault = f"{nearest} is a file" if os.path.isfile(nearest) else ""
    except (RuntimeError, ValueError) as error:  # an unknown user's home; a zero byte in the name
        fault = str(error)
    if fault:
        raise SelectionError(
            "frame_cache_dir must be a folder on a fast disk, existing or new; got "
            f"{str(folder)!r}: {fault}"
        )


def _warn_of_little_memory(
    layout: BatchLayout, limits: ResourceLimits, frames: FrameBudget, needed: int
) -> None:
    """Log, once in a process, what too little memory for decoded frames costs."""
    worker = get_worker_info()  # of a plain DataLoader: the first one logs for all
    if (limits, needed) in _WARNED or (worker is not None and worker.id > 0):
        return
    _WARNED.add((limits, needed))
    videos = layout.videos
    gop = max(camera.gop_frames for camera in layout.cameras if camera.key in videos)
    logger.warning(
        "decoded frames may take %s on this rank (%s), but this order needs %s to decode each "
        "frame once. With less, frames are decoded again: in GOPs of %d frames up to about %.3g "
        "frames for each delivered one, and loading slows down as much. Raise frame_cache_bytes, "
        "set frame_cache_dir, lower episode_pool_size, use resize or fewer cameras, or recode the "
        "videos with shorter GOPs (robostream recode).",
        format_bytes(frames.nbytes),
        frames.reason,
        format_bytes(needed),
        gop,
        (gop + 1) / 2,
    )


def _count_decoders(layout: BatchLayout, lanes: int, num_workers: int) -> int:
    """Return how many decoders of a worker may pause in the middle of a long GOP.

    One for each lane and camera, and some where episodes meet; fewer if large frames would make
    them exceed their share of memory.
    """
    videos = layout.videos
    wanted = -(-lanes * len(videos) * 3 // (2 * num_workers))
    sizes = (camera.decoded_bytes for camera in layout.cameras if camera.key in videos)
    largest = max(sizes, default=0)
    most = config.DECODER_BYTES // (config.FRAMES_PER_DECODER * largest + (1 << 20))
    return max(1, min(wanted, most))


def _is_split(cores: set[int]) -> bool:
    """Return whether the launcher has given this process cores of its own.

    It has if the parent process may use more cores, or if Slurm says how many each task has.
    """
    per_task = os.environ.get("SLURM_CPUS_PER_TASK", "")
    if per_task.isdigit() and len(cores) <= int(per_task):
        return True
    with contextlib.suppress(OSError):  # the parent may have ended
        return cores < os.sched_getaffinity(os.getppid())
    return False


def _address_space() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


def _cgroup_bytes(name: str) -> int | None:
    """Return the size in a file of this process's cgroup; None for no limit, or no such file."""
    text = _read_cgroup(name).strip()
    return int(text) if text.isdigit() else None


def _read_cgroup(name: str) -> str:
    try:
        return (_CGROUP / name).read_text()
    except OSError:
        return ""
