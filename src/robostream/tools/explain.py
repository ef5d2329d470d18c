# SPDX-License-Identifier: Apache-2.0
"""Which frames, files and bytes made a batch of a run, from its state alone.

The order of an epoch is a function of what a state holds, so a batch of any step is computed, not
replayed. Nothing is decoded, unless a contact sheet is wanted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

from PIL import Image

from robostream import config
from robostream.assemble import CameraReader, OpenedDataset, RowReader
from robostream.decode import VideoFiles, packet_span
from robostream.errors import SelectionError, StateError
from robostream.plan import (
    Cut,
    EpochPlan,
    PlanState,
    check_state,
    digest,
    frames_at,
    parse_state,
    steps_left,
)
from robostream.tools.views import Cell, beside, draw_sheet, draw_thumbnails, tasks_of

_TORCH_FILES = (".pt", ".pth", ".ckpt", ".bin")
_OPEN_VIDEOS = 64
_THUMBNAIL_PX = 120
_CELLS_PER_ROW = 8


@dataclass(frozen=True, slots=True)
class SourceBytes:
    """The part of a file that a sample needs."""

    feature: str  # the camera; "rows" for the rows of the episode
    file: str  # the file, relative to the dataset
    start: int  # the first byte
    stop: int  # the byte after the last one
    number: int | None  # the number of the frame in the video; None for rows


@dataclass(frozen=True, slots=True)
class BatchSample:
    """One sample of a batch."""

    position: int  # its position in the epoch
    rank: int  # the rank that delivers it
    episode: int
    frame: int
    index: int  # the dataset-wide index of the frame, as samples have it
    seconds: float  # the time of the frame in its episode
    tasks: list[str]
    is_repeated: bool  # whether it completes the tail of the epoch and was delivered before
    sources: list[SourceBytes]


@dataclass(frozen=True, slots=True)
class BatchExplanation:
    """A global batch of a run."""

    epoch: int
    step: int  # the step, counted from `counted_from`
    steps: int  # the steps from there to the end of the epoch
    counted_from: int  # the position of step 0
    start: int  # the first position
    stop: int  # the position after the last one; without those that complete the tail
    digest: int  # the digest of the frames in between
    quarantined: list[int]  # episodes whose frames are replaced by others, as the state lists them
    samples: list[BatchSample]  # the samples, by position


def load_state(path: Path) -> PlanState:
    """Return the state in a JSON file or a checkpoint of torch, at its top or inside it."""
    try:
        if path.suffix in _TORCH_FILES:
            import torch

            values = torch.load(path, map_location="cpu", weights_only=True)
        else:
            values = json.loads(path.read_text())
    except (OSError, ValueError, RuntimeError, EOFError, LookupError, UnpicklingError) as error:
        reason = str(error).partition(". ")[0]  # torch goes on about its own settings
        raise StateError(
            f"{path}: want a state that loader.state_dict() returned, as JSON or in a checkpoint "
            f"of torch; it cannot be read ({reason}). Save one with json.dump."
        ) from error
    found = list(_states_in(values))
    if len(found) != 1:
        raise StateError(
            f"{path}: want one state that loader.state_dict() returned, found {len(found)}. States "
            "that only count batches do not name an order."
        )
    return parse_state(found[0])


def _states_in(values: object) -> Iterator[Mapping[str, Any]]:
    if isinstance(values, Mapping):
        if {"fingerprint", "receipt"} <= set(values):
            yield values
        else:
            for value in values.values():
                yield from _states_in(value)


def explain_batch(
    dataset: OpenedDataset,
    state: PlanState,
    cut: Cut,
    step: int,
    *,
    epoch: int | None = None,
    counted_from: int = 0,
) -> BatchExplanation:
    """Return what made a global batch of a run.

    Args:
        dataset: The dataset, with the selection of the run.
        state: Any state of the run.
        cut: The world size and the batch size of the run; its rank does not matter.
        step: The step, counted from the position `counted_from`.
        epoch: None for that of the state.
        counted_from: 0, or where the run resumed with this world size and batch size.
    """
    plan = _plan_of(dataset, state).replace(epoch=state.epoch if epoch is None else epoch)
    steps = steps_left(cut, plan.num_frames, min(counted_from, plan.num_frames))
    if not 0 <= step < steps:
        raise SelectionError(
            f"there is no step {step}: an epoch of {plan.num_frames:,} frames has {steps:,} steps "
            f"of {cut.step_size:,} samples from position {counted_from:,} on, counted from 0"
        )
    start = counted_from + step * cut.step_size
    stop = min(start + cut.step_size, plan.num_frames)
    # Positions after the last frame complete the tail, so that all ranks deliver equally many.
    padded = range(start, start + -(-(stop - start) // cut.world_size) * cut.world_size)
    return BatchExplanation(
        epoch=plan.epoch,
        step=step,
        steps=steps,
        counted_from=counted_from,
        start=start,
        stop=stop,
        digest=digest(*plan.slice(start, stop)),
        quarantined=list(plan.quarantined),
        samples=list(_trace(dataset, plan, padded, cut.world_size, stop)),
    )


def _plan_of(dataset: OpenedDataset, state: PlanState) -> EpochPlan:
    """Return the order of the run, or raise StateError if it is of another dataset or selection."""
    if state.lanes > config.MOST_LANES:
        raise StateError(f"want at most {config.MOST_LANES} lanes in a state, got {state.lanes}")
    if state.since is not None:
        raise StateError(
            "want the state of a run over whole episodes of one dataset, got one of a mixture, or "
            "of trimmed, strided or weighted episodes; explain does not know their order"
        )
    settings = ("seed", "epoch", "lanes", "pool_size", "shuffle")
    values: dict[str, Any] = {name: getattr(state, name) for name in settings}
    selection = dataset.selection
    plan = EpochPlan(selection.lengths, episodes=selection.episodes, **values)
    check_state(state, plan, fingerprint=dataset.meta.fingerprint)
    return plan.replace(quarantined=state.quarantined)


def _trace(
    dataset: OpenedDataset, plan: EpochPlan, positions: range, world_size: int, stop: int
) -> Iterator[BatchSample]:
    """Yield the samples at some positions; reads only footers and sample tables."""
    meta, opener = dataset.meta, dataset.file_opener()
    videos = VideoFiles(
        opener.open,
        max_files=_OPEN_VIDEOS,
        index_folder=dataset.index_folder,
        looked_since_s=dataset.opened_at_s,
    )
    find_clip = cache(partial(dataset.find_frames, videos))
    places = (numbers.tolist() for numbers in frames_at(plan, positions))
    with closing(RowReader(dataset, opener, [])) as rows:
        for position, episode, frame in zip(positions, *places, strict=True):
            found = rows.find(episode)
            sources = [SourceBytes("rows", found.file, *found.groups, None)]
            for key in dataset.spec.videos:
                file, numbers = find_clip(episode, key)
                number = int(numbers[frame])
                span = packet_span(file.index, [number])
                sources.append(SourceBytes(key, file.name, *span, number))
            yield BatchSample(
                position=position,
                rank=position % world_size,
                episode=episode,
                frame=frame,
                index=int(meta.episodes["dataset_from_index"][episode]) + frame,
                seconds=frame / meta.fps,
                tasks=tasks_of(meta, episode),
                is_repeated=position >= stop,
                sources=sources,
            )


def batch_sheet(dataset: OpenedDataset, explanation: BatchExplanation, *, most: int) -> Image.Image:
    """Return a contact sheet of the first samples of a batch, all cameras of each side by side."""
    if not dataset.spec.cameras:
        raise SelectionError(f"{dataset.meta.repo_id} has no cameras, so there is no contact sheet")
    shown, rows = explanation.samples[:most], []
    with CameraReader(dataset) as reader:
        for begin in range(0, len(shown), _CELLS_PER_ROW):
            part, cells = shown[begin : begin + _CELLS_PER_ROW], []
            for sample in part:
                place = sample.episode, [sample.frame]
                images = (reader.read(key, *place) for key in dataset.spec.cameras)
                drawn = [draw_thumbnails(image, width=_THUMBNAIL_PX)[0] for image in images]
                cells.append(Cell(beside(drawn), f"{sample.episode}, frame {sample.frame}"))
            text = f"positions {part[0].position:,} to {part[-1].position:,}"
            rows.append((text, cells))
    title = f"epoch {explanation.epoch}, step {explanation.step}: episode and frame of each sample"
    return draw_sheet(title, rows)
