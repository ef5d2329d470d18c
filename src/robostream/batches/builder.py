# SPDX-License-Identifier: Apache-2.0
"""The parts of one iterator's batches that one process builds: it decodes, draws, writes rows."""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from robostream.assemble import Arrays, decode_images_into, fill_row, read_texts, write_depth
from robostream.batches.augment import transform_pictures, write_transformed
from robostream.batches.clip import Clip, Clock, is_long
from robostream.batches.context import WorkerContext
from robostream.batches.lane_lookahead import LaneLookahead, LanePart, LaneShare
from robostream.batches.part_fetcher import PartFetcher
from robostream.batches.prefetch import Prefetcher
from robostream.errors import DatasetError, StorageError
from robostream.plan import (
    CHUNK_FRAMES,
    NextUse,
    Schedule,
    ScheduledStep,
    extra_frame,
    margin_frames,
    schedule_steps,
)

logger = logging.getLogger(__name__)


# The texts of a batch, by key and by place in the batch.
Texts = dict[str, dict[int, Any]]


class BadSampleError(Exception):
    """A sample could not be built; the cause says why.

    Attributes:
        episode: The episode of the sample.
        frame: The frame of the sample.
        position: Its position in the epoch.
    """

    def __init__(self, episode: int, frame: int, position: int) -> None:
        super().__init__(episode, frame, position)
        self.episode, self.frame, self.position = episode, frame, position


class _Sample(NamedTuple):
    """A sample of a batch being built, and which parts of it this process writes.

    `rows` says whether its rows, `stored` which of the cameras whose pictures lie in Parquet.
    """

    step: int
    place: int
    episode: int
    frame: int
    rows: bool
    stored: list[int]


class _Want(NamedTuple):
    """The pictures of one reel that one sample needs, in the order of the window."""

    sample: _Sample
    reel: Clip
    pictures: list[int]


class _Part(NamedTuple):
    """One process's part of a batch: where it is written, and what belongs to it."""

    arrays: Arrays
    samples: list[_Sample]
    wants: list[_Want]
    pieces: list[tuple[LaneLookahead, LanePart]]
    extras: list[Clip]


class BatchBuilder:
    """Builds one process's parts of the batches of a tour, one after the other.

    Args:
        worker: What the process holds open.
        tour: What is delivered.
        lanes: The rank's lanes to take samples from, ascending. The worker's duties say which
            parts of these samples are its own.
    """

    def __init__(self, worker: WorkerContext, tour: Schedule, lanes: Sequence[int]) -> None:
        self._worker = worker
        self._tour = tour
        self._clock = Clock()
        self._lanes: list[LaneLookahead] = []
        numbers: list[int] = []
        for at, number in enumerate(lanes):
            is_ours = not tour.plan.shuffle or any(self._share(at))
            if number < tour.plan.num_frames and is_ours:
                numbers.append(number)
                self._lanes.append(self._open_lane(number, at))
        self._agenda = schedule_steps(tour, numbers)
        self._prefetcher = self._prefetch(worker.bringer) if worker.bringer else None

    def next_share(self) -> ScheduledStep | None:
        """Return this process's share of the next step, or None after the last step."""
        return next(self._agenda, None)

    def count_pictures(self, share: ScheduledStep) -> int:
        """Return about how many pictures a share of a batch has."""
        return len(share.places) * max(map(len, self._worker.offset_lists), default=0)

    def fill(self, shares: Sequence[tuple[ScheduledStep, Arrays]]) -> Iterator[Texts]:
        """Write this process's parts of some batches; yield the texts of each when it is written.

        Decodes for all of them at once: many workers have little to decode for one batch. Raises
        BadSampleError for the first batch that cannot be built, after those before it.
        """
        self._clock.step = shares[0][0].step
        if self._prefetcher is not None:
            self._prefetcher.advance(self._clock.step)
        ahead: dict[Clip, list[int]] = {}
        parts: list[_Part] = []
        bad: BadSampleError | None = None
        for share, arrays in shares:
            try:
                parts.append(self._collect(share, arrays, ahead))
            except BadSampleError as error:
                bad = error
                break
        failure = self._decode([want for part in parts for want in part.wants], ahead)
        for (share, _), part in zip(shares, parts, strict=False):
            self._clock.step = share.step
            if failure is not None:
                self._decode_one_by_one(part.wants)
            texts = self._write(part)
            if part is parts[-1]:
                self._finish(parts)  # before the last batch is delivered, so that all is counted
            yield texts
        if bad is not None:
            raise bad
        if failure is not None:
            logger.warning(
                "decoding several pictures at once failed, but decoding each again for its own "
                "sample did not, so nothing is missing. The first error was: %s",
                failure,
            )

    def _collect(self, share: ScheduledStep, arrays: Arrays, ahead: dict[Clip, list[int]]) -> _Part:
        """Return a part of a batch, and note what to decode ahead for it."""
        part = _Part(arrays, [], [], [], [])
        for place, at, frame, head in zip(
            share.places, share.lanes, share.frames, share.heads, strict=True
        ):
            lane = self._lanes[at]
            ours = lane.share(frame)
            episode, own = lane.locate(frame)
            sample = _Sample(share.step, place, episode, own, ours.rows, ours.stored)
            part.samples.append(sample)
            if ours.videos:
                if self._worker.runs_ahead:
                    self._run_ahead(lane, head, ahead)
                piece = self._guard(sample, lane.piece_at, frame)
                part.pieces.append((lane, piece))
                part.wants.extend(self._want(sample, reel, own) for reel in piece.reels)
        for place, position in share.extras:
            sample, reels = self._open_extra(share.step, place, position)
            part.samples.append(sample)
            part.extras.extend(reels)
            part.wants.extend(self._want(sample, reel, sample.frame) for reel in reels)
        return part

    def _write(self, part: _Part) -> Texts:
        """Write a part, whose pictures are decoded; return its texts."""
        texts: Texts = {}
        for want in part.wants:
            self._guard(want.sample, self._draw, want, part.arrays)
        for sample in part.samples:
            self._guard(sample, self._fill_sample, sample, part.arrays, texts)
        return texts

    def close(self) -> None:
        """Let go of all pictures and decoders."""
        if self._prefetcher is not None:
            self._prefetcher.close()
        for lane in self._lanes:
            for reel in lane.reels():
                self._worker.projector.close(reel)
        self._lanes.clear()

    def _prefetch(self, bringer: PartFetcher) -> Prefetcher:
        plan, use = self._tour.plan, NextUse(self._tour)
        return Prefetcher(
            self,
            [lane.coming() for lane in self._lanes],
            lambda coming: bringer.bring(coming, use.now(coming)),
            lambda coming: bringer.release(coming, use.later(coming)),
            frames_per_step=self._tour.cut.step_size / plan.lanes,
            margin=margin_frames(plan.window) + CHUNK_FRAMES,
        )

    def _open_lane(self, number: int, at: int) -> LaneLookahead:
        """Return the work on lane `number` of the plan, which is lane number `at` of the rank."""
        lane = self._share(at)
        share_of = (lambda block: lane) if self._tour.plan.shuffle else self._share
        return LaneLookahead(
            self._tour,
            number,
            share_of,
            [(int(offsets.min()), int(offsets.max())) for offsets in self._worker.offsets],
            functools.partial(self._worker.open_clip, self._clock),
            stagger=len(self._lanes),
        )

    def _share(self, number: int) -> LaneShare:
        """Return what this worker owns of a lane, or of a block where nothing is shuffled."""
        duties = self._worker.duties
        return self._split(duties.owns_rows(number), duties.cameras(number))

    def _split(self, rows: bool, cameras: list[int]) -> LaneShare:
        is_video = self._worker.is_video
        return LaneShare(
            rows,
            videos=[camera for camera in cameras if is_video[camera]],
            stored=[camera for camera in cameras if not is_video[camera]],
        )

    def _run_ahead(self, work: LaneLookahead, head: int, ahead: dict[Clip, list[int]]) -> None:
        try:
            ranges = work.run_ahead(head)
        except DatasetError:
            return  # the first sample that needs these pictures raises the error
        for reel, first, stop in ranges:
            missing = reel.missing(first, whole_gops(reel, stop))
            if missing and work.is_catching_up:
                # Pictures that leave only at the end of the epoch are decoded then.
                soon = reel.due(np.array(missing)) <= 2 * work.window_steps
                missing = [p for p, is_soon in zip(missing, soon, strict=True) if is_soon]
            if missing:
                ahead.setdefault(reel, []).extend(missing)

    def _want(self, sample: _Sample, reel: Clip, frame: int) -> _Want:
        last = len(reel) - 1
        at = frame - reel.first
        pictures = [min(max(at + o, 0), last) for o in self._worker.offset_lists[reel.camera]]
        for picture in pictures:
            reel.now[picture] = reel.now.get(picture, 0) + 1
        return _Want(sample, reel, pictures)

    def _open_extra(self, step: int, place: int, position: int) -> tuple[_Sample, list[Clip]]:
        duties, worker = self._worker.duties, self._worker
        episode, frame = extra_frame(self._tour, position)
        ours = self._split(duties.owns_extra_rows(place), duties.extra_cameras(place))
        sample = _Sample(step, place, episode, frame, ours.rows, ours.stored)
        here, then = np.array([frame]), np.array([step])
        reels = [
            self._guard(sample, worker.open_clip, self._clock, camera, episode, here, then)
            for camera in ours.videos
        ]
        return sample, reels

    def _decode(self, wants: list[_Want], ahead: dict[Clip, list[int]]) -> BaseException | None:
        """Decode what samples need and what is due ahead; return what went wrong, if it did."""
        keeps = self._worker.keeps_pictures
        for reel, pictures in ahead.items():
            with contextlib.suppress(DatasetError, StorageError):
                self._worker.bring(reel, pictures)
        try:
            for want in wants:
                reel = want.reel
                self._worker.shelf.check(reel, want.pictures)
                for picture in want.pictures:
                    if reel.slots[picture] < 0:
                        partners = with_partners(reel, picture) if keeps else [picture]
                        self._guard(want.sample, self._worker.bring, reel, partners)
                        ahead.setdefault(reel, []).extend(partners)
            requests = [(reel, sorted(set(them))) for reel, them in ahead.items() if them]
            self._worker.projector.decode(requests)
        except BadSampleError as bad:
            return bad.__cause__
        except (DatasetError, StorageError) as error:
            return error
        return None

    def _decode_one_by_one(self, wants: list[_Want]) -> None:
        """Decode for one sample after the other, to find the one that cannot be built."""
        for want in wants:
            missing = sorted({p for p in want.pictures if want.reel.slots[p] < 0})
            self._guard(want.sample, self._worker.projector.decode, [(want.reel, missing)])

    def _draw(self, want: _Want, arrays: Arrays) -> None:
        worker, reel = self._worker, want.reel
        camera = worker.layout.cameras[reel.camera]
        out = self._place_of(reel.camera, want.sample.place, arrays)
        if camera.coding is None:
            worker.projector.draw(reel, want.pictures, out)
        else:
            codes = np.empty(camera.stack, np.uint16)
            worker.projector.draw(reel, want.pictures, codes)
            write_depth(worker.layout, camera, codes, out)
        if camera.is_transformed:
            self._transform(reel.camera, want.sample, out, arrays)

    def _place_of(self, camera: int, place: int, arrays: Arrays) -> npt.NDArray[Any]:
        layout = self._worker.layout.cameras[camera]
        if layout.is_transformed:
            return np.empty(layout.stack, layout.dtype)
        own: npt.NDArray[Any] = arrays[layout.key][place]
        return own.reshape(layout.stack[0], -1) if layout.is_yuv else own.reshape(layout.stack)

    def _transform(
        self, camera: int, sample: _Sample, pictures: npt.NDArray[Any], arrays: Arrays
    ) -> None:
        layout, plan = self._worker.layout, self._tour.plan
        transform, own = layout.spec.image_transforms, layout.cameras[camera]
        assert transform is not None
        position = self._tour.positions(sample.step)[sample.place]
        key = (plan.seed, plan.epoch, position, camera)
        result = transform_pictures(transform, pictures.reshape(own.shape), key=key)
        write_transformed(result, arrays[own.key][sample.place], own.key)

    def _fill_sample(self, sample: _Sample, arrays: Arrays, texts: Texts) -> None:
        worker, layout = self._worker, self._worker.layout
        if sample.rows:
            rows = worker.rows(sample.episode)
            fill_row(layout, arrays, sample.place, rows, sample.frame)
            for key, text in read_texts(layout, rows, sample.frame).items():
                texts.setdefault(key, {})[sample.place] = text
        for camera in sample.stored:
            rows = worker.stored_pictures(camera, sample.episode)
            at = sample.frame + worker.offsets[camera]
            frames = np.clip(at, 0, rows.length - 1).tolist()
            out = self._place_of(camera, sample.place, arrays)
            decode_images_into(layout, layout.cameras[camera], rows, frames, out)
            worker.count_stored(len(frames))
            if layout.cameras[camera].is_transformed:
                self._transform(camera, sample, out, arrays)

    def _finish(self, parts: list[_Part]) -> None:
        projector = self._worker.projector
        for part in parts:
            for want in part.wants:
                want.reel.now.clear()
            for work, piece in part.pieces:
                if not any(reel.waiting for reel in piece.reels):
                    for reel in piece.reels:
                        projector.close(reel)
                    work.retire(piece)
            for reel in part.extras:
                projector.close(reel)
        projector.end_batch()
        self._worker.count()

    def _guard(self, sample: _Sample, work: Any, *args: Any) -> Any:
        """Return work(*args); an error is raised as BadSampleError, which names the sample."""
        try:
            return work(*args)
        except Exception as error:
            position = self._tour.positions(sample.step)[sample.place]
            cause = self._worker.explain(error)
            raise BadSampleError(sample.episode, sample.frame, position) from cause


def with_partners(reel: Clip, picture: int) -> list[int]:
    """Return a missing picture, and others of its GOP that are missing and still to be delivered.

    In a short GOP, most of the cost is the first frame; decoding the others later would mean to
    decode the first frame again. In a long GOP only the picture itself is decoded: the others
    follow when decoding along the line comes by. If it never does, they are decoded now too.
    """
    if is_long(reel) and not reel.is_behind:
        return [picture]
    first, stop = reel.file.index.gop_of(int(reel.numbers[picture]))
    return reel.missing(reel.picture_from(first), reel.picture_from(stop))


def whole_gops(reel: Clip, stop: int) -> int:
    """Return `stop`, moved on to the end of the GOP it lies in, unless GOPs are long."""
    if not 0 < stop < len(reel) or is_long(reel):
        return stop
    _, following = reel.file.index.gop_of(int(reel.numbers[stop - 1]))
    return max(stop, reel.picture_from(following))
