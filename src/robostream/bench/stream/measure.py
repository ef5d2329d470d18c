# SPDX-License-Identifier: Apache-2.0
"""Run one setting: stream batches, move them to the device, and note everything."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from robostream.bench.memory import MemoryWatch
from robostream.bench.results import Figures
from robostream.bench.stream.figures import Seen, all_figures
from robostream.bench.stream.floor import floor_figures
from robostream.bench.stream.mixing import Mixing
from robostream.bench.stream.pace import DecodePacing
from robostream.bench.stream.settings import TOLERANCE_S, StreamSettings
from robostream.errors import RobostreamError, SelectionError
from robostream.loader import StreamingDataLoader, StreamingLeRobotDataset
from robostream.meta import LeRobotDatasetMetadata


@dataclass(frozen=True, slots=True)
class StreamResult:
    """The figures of one run, and the name to keep them under."""

    name: str
    figures: Figures


def measure_stream(settings: StreamSettings) -> StreamResult:
    """Return what streaming with these settings gave. Blocks for as long as that takes."""
    device = _device(settings)
    began = time.perf_counter()
    with MemoryWatch() as memory:
        stream = _open(settings)
        loader = StreamingDataLoader(
            stream,
            settings.batch_size,
            num_workers=settings.num_workers,
            prefetch_factor=settings.prefetch_factor,
            drop_last=True,
            pin_memory=device.type == "cuda" and settings.video_decode_device == "cpu",
        )
        opened_s = time.perf_counter() - began
        try:
            seen = _consume(loader, settings, device, opened_s)
        finally:
            loader.close()
    wallclock_s = time.perf_counter() - began
    floor = floor_figures(stream.meta, max(loader.num_workers, 1), settings.floor_s)
    prefetch = loader.prefetch_factor or 0
    name = settings.result_name(workers=loader.num_workers, prefetch=prefetch)
    if stream.world_size > 1:
        name = f"{name}_r{stream.rank}of{stream.world_size}"
    figures = all_figures(settings, loader, seen, memory, floor=floor, wallclock_s=wallclock_s)
    return StreamResult(name, figures)


def _device(settings: StreamSettings) -> torch.device:
    wanted = settings.device
    if wanted == "auto":
        wanted = "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device(wanted)
    if "cuda" in (device.type, settings.video_decode_device) and not torch.cuda.is_available():
        raise SelectionError(
            f"--device {settings.device} --video_decode_device {settings.video_decode_device}: "
            "want a CUDA GPU, found none that torch can use. Run where there is one, with a CUDA "
            "build of torch, or ask for cpu."
        )
    return device


def _open(settings: StreamSettings) -> StreamingLeRobotDataset:
    windows = None
    if settings.mode != "single":
        meta = LeRobotDatasetMetadata(settings.repo_id, settings.root, settings.revision)
        windows = settings.windows(meta.camera_keys)
    return StreamingLeRobotDataset(
        settings.repo_id,
        root=settings.root,
        revision=settings.revision,
        data_files_root=settings.data_files_root,
        delta_timestamps=windows,
        tolerance_s=TOLERANCE_S,
        episode_pool_size=settings.episode_pool_size,
        video_decoder_cache_size=settings.video_decoder_cache_size,
        video_decode_device=settings.video_decode_device,
        frame_cache_bytes=settings.frame_cache_bytes,
        return_uint8=settings.return_uint8,
    )


def _consume(
    loader: StreamingDataLoader, settings: StreamSettings, device: torch.device, opened_s: float
) -> Seen:
    """Take the batches of the warm-up and of the measurement, over as many epochs as it takes."""
    pace = DecodePacing(settings.warmup_batches)
    mixing = Mixing(loader.stream.meta.episodes["length"], settings.batch_size)
    before = loader.stats()
    began = asked = time.perf_counter()
    for number, batch in zip(
        range(settings.warmup_batches + settings.num_batches), _batches(loader), strict=False
    ):
        arrived = time.perf_counter()
        _move(batch, device)
        mixing.add(batch)
        pace.add(arrived - began, arrived - asked, len(batch["index"]))
        del batch
        if number + 1 == settings.warmup_batches:
            before = loader.stats()
        asked = time.perf_counter()
        if settings.at_most_s and asked - began > settings.at_most_s:
            break
    if not pace.measured:
        raise RobostreamError(
            f"no frame was measured: {len(pace.samples)} batches came, of which the first "
            f"{settings.warmup_batches} are the warm-up. Ask for --num_batches of 1 or more."
        )
    return Seen(opened_s, device, pace, mixing, before, after=loader.stats())


def _batches(loader: StreamingDataLoader) -> Iterator[dict[str, Any]]:
    while True:
        yield from loader


def _move(batch: dict[str, Any], device: torch.device) -> None:
    """Do what a trainer does first with a batch; on the CPU there is nothing to do."""
    for value in batch.values():
        if isinstance(value, torch.Tensor):
            value.to(device, non_blocking=True)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
