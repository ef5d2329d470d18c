# SPDX-License-Identifier: Apache-2.0
"""The parts of one iterator's batches that one process builds: it decodes, draws, writes rows."""

from __future__ import annotations

import contextlib
import functools
import logging
import operator
from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple, NoReturn

import numpy as np

from robostream.assemble import Arrays
from robostream.batches.context import WorkerContext
from robostream.batches.lane_lookahead import LaneLookahead, LaneShare
from robostream.batches.prefetch import Prefetcher
from robostream.batches.sample_writer import SampleParts, SampleWriter, Texts, WantedFrames
from robostream.decode import NEVER, ClipUses, Clock, Deliveries
from robostream.errors import DatasetError, StorageError
from robostream.plan import (
    CHUNK_FRAMES,
    NextUse,
    Schedule,
    ScheduledStep,
    extra_frame,
    lookahead_steps,
    margin_frames,
    schedule_steps,
)

logger = logging.getLogger(__name__)

# A process decodes for several batches at once, until its parts of them hold so many frames, or
# about so many bytes: frames that no later batch needs are not in the memory for decoded frames.
_FRAMES_AT_A_TIME = 64
_BYTES_AT_A_TIME = 16 << 20
# It decodes ahead for batches that have no memory yet: at most so many samples for each other
# worker, as long as so many more frames fit into the memory for decoded frames.
_SAMPLES_AHEAD = 96
_LEAST_ROOM = 64

_num_left = operator.attrgetter("num_left")
# Frames to decode, by clip.
_Requests = dict[ClipUses, list[int]]


class BadSampleError(Exception):
    """The sample of a frame of an episode, at a position of the epoch, could not be built.

    `error` says why.
    """

    def __init__(self, episode: int, frame: int, position: int, error: Exception) -> None:
        super().__init__(episode, frame, position, error)
        self.episode, self.frame, self.position = episode, frame, position
        self.error = error


class _BatchPart(NamedTuple):
    """One process's part of a batch, and the error that decoding it with others raised."""

    samples: list[SampleParts]
    wants: list[WantedFrames]
    clips: list[list[ClipUses]]
    failure: Exception | None = None


class BatchBuilder:
    """Builds one process's parts of the batches of a schedule, one after the other.

    `lanes` are the rank's lanes to take samples from, ascending. The worker's shard says which
    parts of these samples are its own.
    """

    def __init__(self, worker: WorkerContext, schedule: Schedule, lanes: Sequence[int]) -> None:
        self._worker = worker
        self._schedule = schedule
        self._writer = SampleWriter(worker, schedule)
        layout = worker.layout
        self._longest_window = max((c.stack[0] for c in layout.cameras), default=0)
        largest = max((c.cached_bytes for c in layout.cameras), default=0)
        self._at_a_time = min(_FRAMES_AT_A_TIME, _BYTES_AT_A_TIME // max(largest, 1))
        self._clock = Clock()
        self._lanes: list[LaneLookahead] = []
        # The clips of samples without a lane, and those to close because they are delivered.
        self._extras: list[list[ClipUses]] = []
        self._ending: list[ClipUses] = []
        numbers: list[int] = []
        for at, number in enumerate(lanes):
            is_ours = not schedule.plan.shuffle or worker.shard.owns_part(at)
            if number < schedule.plan.num_frames and is_ours:
                numbers.append(number)
                self._lanes.append(self._open_lane(number, at))
        self._steps = schedule_steps(schedule, numbers)
        self._has_begun = False
        # What is decoded ahead: the shares of batches that have no memory yet, and their parts.
        self._shares_ahead: deque[ScheduledStep] = deque()
        self._parts_ahead: dict[int, _BatchPart | BadSampleError] = {}
        samples_ahead = _SAMPLES_AHEAD * (worker.shard.num_workers - 1)
        self._most_ahead = -(-samples_ahead // schedule.cut.batch_size)
        # Frames that are due in more steps than this may be evicted for those decoded ahead: the
        # frames of the lead-in, due at the end of the epoch. In long GOPs none may, because
        # decoding them again would cost far more.
        self._steps_ahead = NEVER
        if not any(camera.has_long_gops for camera in layout.cameras):
            longest = max(map(layout.window_frames, range(len(layout.cameras))), default=0)
            self._steps_ahead = self._most_ahead + lookahead_steps(schedule, longest)
        self._last_failure: str | None = None
        self._prefetcher = self._prefetch() if worker.prefetch_requests else None

    def next_share(self) -> ScheduledStep | None:
        """Return this process's share of the next batch, or None after the last one."""
        return self._shares_ahead.popleft() if self._shares_ahead else next(self._steps, None)

    def next_shares(self, most: int) -> list[ScheduledStep]:
        """Return this process's shares of the next batches to fill together: at most so many.

        The first batch is filled alone, so that it comes soon.
        """
        most, self._has_begun = most if self._has_begun else 1, True
        return self._take(iter(self.next_share, None), most)

    def decode_ahead(self) -> bool:
        """Decode for batches after those that have memory; return False if there is none to decode.

        A worker that waits for slower ones uses the time for later batches. After an error, it
        decodes nothing ahead until the batch of that error is due, which raises it.
        """
        ahead = self._shares_ahead
        if len(ahead) >= self._most_ahead:
            return False
        # Finding frames to evict takes a look at all that are cached, so it comes second.
        if not self._worker.has_room(_LEAST_ROOM, self._steps_ahead):
            return False
        if any(isinstance(p, BadSampleError) or p.failure for p in self._parts_ahead.values()):
            return False
        shares = self._take(self._steps, self._most_ahead - len(ahead))
        ahead += shares
        self._parts_ahead |= zip([s.step for s in shares], self._decode_parts(shares), strict=False)
        self._worker.count()
        return bool(shares)

    def fill(self, shares: Sequence[tuple[ScheduledStep, Arrays]]) -> Iterator[Texts]:
        """Write this process's parts of some batches; yield the texts of each when it is written.

        Decodes for all of them at once: many workers have little to decode for one batch. Raises
        BadSampleError for the first batch that cannot be built, after those before it.
        """
        self._clock.move_to(shares[0][0].step)
        decoded = self._parts_ahead
        new = [share for share, _ in shares if share.step not in decoded]
        decoded |= zip([share.step for share in new], self._decode_parts(new), strict=False)
        parts: list[_BatchPart] = []
        for share, arrays in shares:
            part = decoded.pop(share.step)
            if isinstance(part, BadSampleError):
                self._finish(parts)
                raise part
            self._clock.move_to(share.step)
            if part.failure is not None:
                self._decode_one_by_one(part.wants)
            texts = self._write(part, arrays)
            parts.append(part)
            if len(parts) == len(shares):
                self._finish(parts)  # before the last batch is delivered, so that all is counted
            yield texts
        for failure in (str(part.failure) for part in parts if part.failure is not None):
            if failure != self._last_failure:
                logger.warning(
                    "decoding several frames at once failed, but decoding each again for its own "
                    "sample did not, so nothing is missing. The first error was: %s",
                    failure,
                )
            self._last_failure = failure

    def close(self) -> None:
        """Drop all frames and decoders."""
        if self._prefetcher is not None:
            self._prefetcher.close()
        for lane in self._lanes:
            self._ending += lane.clips()
        for clips in self._extras:
            self._ending += clips
        self._close_clips()
        self._lanes.clear()

    def _take(self, shares: Iterator[ScheduledStep], most: int) -> list[ScheduledStep]:
        """Take shares of batches, at least one, until they hold the frames to decode at a time."""
        taken: list[ScheduledStep] = []
        frames = 0
        while len(taken) < most and (not taken or frames < self._at_a_time):
            if (share := next(shares, None)) is None:
                break
            taken.append(share)
            frames += max(1, len(share.places) * self._longest_window)
        return taken

    def _decode_parts(self, shares: Sequence[ScheduledStep]) -> list[_BatchPart | BadSampleError]:
        """Decode this process's parts of some batches, all at once.

        The parts end with the first sample whose clips cannot be opened.
        """
        if not shares:
            return []
        if self._prefetcher is not None:
            self._prefetcher.advance(self._clock.step, shares[0].step)
        ahead: _Requests = {}
        parts: list[_BatchPart] = []
        bad: list[BadSampleError] = []
        for share in shares:
            try:
                parts.append(self._collect(share, ahead))
            except BadSampleError as error:
                bad.append(error)
                break
        failure = self._decode([want for part in parts for want in part.wants], ahead)
        if failure is not None:
            parts = [part._replace(failure=failure) for part in parts]
        return [*parts, *bad]

    def _collect(self, share: ScheduledStep, ahead: _Requests) -> _BatchPart:
        """Return a part of a batch, and add to `ahead` what to decode ahead for it."""
        worker = self._worker
        part = _BatchPart([], [], [])
        for place, at, frame, head in zip(
            share.places, share.lanes, share.frames, share.heads, strict=True
        ):
            lane = self._lanes[at]
            lane_part, own = lane.part_at(frame)
            episode, ours = lane_part.episode, lane_part.share
            source = worker.sources.of(episode)
            sample = SampleParts(share.step, place, source, episode, own, ours.rows, ours.others)
            part.samples.append(sample)
            if not ours.videos:
                continue
            if worker.runs_ahead and lane.runs_ahead:
                self._run_ahead(lane, head, share.step, ahead)
            try:
                clips = lane_part.clips or lane.open(lane_part)
            except Exception as error:
                self._blame(sample, error)
            part.clips.append(clips)
            part.wants.extend([WantedFrames(sample, u, u.want(own)) for u in clips])
        for place, position in share.extras:
            sample, clips = self._open_extra(share.step, place, position)
            part.samples.append(sample)
            part.clips.append(clips)
            part.wants.extend([WantedFrames(sample, u, u.want(sample.frame)) for u in clips])
        return part

    def _write(self, part: _BatchPart, arrays: Arrays) -> Texts:
        """Write a part whose frames are decoded; return its texts."""
        texts: Texts = {}
        sample = part.samples[0] if part.samples else None
        try:
            for want in part.wants:
                sample = want.sample
                self._writer.draw(want, arrays)
            for sample in part.samples:  # the error names it
                self._writer.fill(sample, arrays, texts)
        except Exception as error:
            assert sample is not None
            self._blame(sample, error)
        return texts

    def _prefetch(self) -> Prefetcher:
        plan, use, of = self._schedule.plan, NextUse(self._schedule), self._worker.sources.of
        return Prefetcher(
            self,
            [lane.coming() for lane in self._lanes],
            lambda coming: of(coming.episode).fetch(coming, use.now(coming)),
            lambda coming: of(coming.episode).release(coming, use.later(coming)),
            requests=self._worker.prefetch_requests,
            frames_per_step=self._schedule.cut.step_size / plan.lanes,
            margin=margin_frames(plan.window) + CHUNK_FRAMES,
        )

    def _open_lane(self, number: int, at: int) -> LaneLookahead:
        """Return lane `number` of the plan, which is lane number `at` of the rank."""
        worker, plan = self._worker, self._schedule.plan

        def share_of(block: int, episode: int) -> LaneShare:
            # Where nothing is shuffled, workers own blocks of a lane in turn.
            owned = at if plan.shuffle else block
            rows, cameras = worker.shard.owns_rows(owned), worker.shard.cameras(owned)
            return worker.sources.of(episode).share(rows, cameras)

        open_clip = functools.partial(worker.open_clip, self._clock)
        stagger = len(self._lanes)
        return LaneLookahead(self._schedule, number, share_of, open_clip, stagger=stagger)

    def _run_ahead(self, lane: LaneLookahead, head: int, step: int, ahead: _Requests) -> None:
        try:
            ranges = lane.run_ahead(head)
        except DatasetError:
            return  # the first sample that needs these frames raises the error
        for uses, first, stop in ranges:
            if stop > 0 and not uses.clip.has_long_gops:
                stop = uses.clip.start_from(stop)
            missing = uses.missing(first, stop)
            if missing and lane.catch_up_steps is not None:
                # Frames that leave only at the end of the epoch are decoded then.
                last_step = step + lane.catch_up_steps
                soon = uses.due(np.array(missing)) <= last_step - self._clock.step
                missing = [f for f, is_soon in zip(missing, soon, strict=True) if is_soon]
            if missing:
                ahead.setdefault(uses, []).extend(missing)

    def _open_extra(
        self, step: int, place: int, position: int
    ) -> tuple[SampleParts, list[ClipUses]]:
        shard = self._worker.shard
        episode, frame = extra_frame(self._schedule, position)
        source = self._worker.sources.of(episode)
        ours = source.share(shard.owns_rows(place), shard.extra_cameras(place))
        sample = SampleParts(step, place, source, episode, frame, ours.rows, ours.others)
        delivered = Deliveries(np.array([frame]), np.array([step]))
        clips: list[ClipUses] = []
        self._extras.append(clips)
        try:
            open_clip = self._worker.open_clip
            clips.extend(open_clip(self._clock, n, episode, delivered) for n in ours.videos)
        except Exception as error:
            self._blame(sample, error)
        return sample, clips

    def _decode(self, wants: list[WantedFrames], ahead: _Requests) -> Exception | None:
        """Decode what samples need and what is due ahead; return the error, if there is one."""
        worker = self._worker
        for uses, frames in ahead.items():
            if worker.prefetch_requests and uses.unfetched:
                with contextlib.suppress(DatasetError, StorageError):
                    uses.fetch(frames)
        try:
            for _, uses, frames in wants:
                decoder, slots = worker.decoders[uses.clip.camera], uses.slots
                if decoder.cache.has_checksums:
                    decoder.cache.drop_damaged(uses, frames)
                for frame in frames:
                    if slots[frame] < 0 and not decoder.has(uses, frame):
                        needed = uses.with_gop(frame) if worker.keeps_frames else [frame]
                        if worker.prefetch_requests and uses.unfetched:
                            uses.fetch(needed)
                        ahead.setdefault(uses, []).extend(needed)
            worker.decode(ahead.items())
        except Exception as error:  # of which sample, `_decode_one_by_one` finds out
            return error
        return None

    def _decode_one_by_one(self, wants: list[WantedFrames]) -> None:
        """Decode for one sample after the other, to find the one that cannot be built."""
        for sample, uses, frames in wants:
            try:
                self._worker.decode([(uses, [f for f in frames if uses.slots[f] < 0])])
            except Exception as error:
                self._blame(sample, error)

    def _finish(self, parts: list[_BatchPart]) -> None:
        for part in parts:
            for clips in part.clips:
                if clips and not any(map(_num_left, clips)):
                    self._ending += clips
                    clips.clear()
        self._extras = list(filter(None, self._extras))
        self._close_clips()
        self._worker.count()

    def _close_clips(self) -> None:
        for uses in self._ending:
            self._worker.close_clip(uses)
        self._ending.clear()

    def _blame(self, sample: SampleParts, error: Exception) -> NoReturn:
        """Raise a BadSampleError that names the sample and the error."""
        position = self._schedule.positions(sample.step)[sample.place]
        cause = self._worker.sources.explain(error)
        raise BadSampleError(sample.episode, sample.frame, position, cause) from cause
