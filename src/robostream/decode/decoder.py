# SPDX-License-Identifier: Apache-2.0
"""FrameDecoder: decodes frames of clips, scales and caches them, and draws them.

Streaming and random access both decode here. They differ in their cache, and in when a frame is
drawn: a batch is drawn when all its frames are decoded, a read draws each frame at once.
"""

from __future__ import annotations

import contextlib
import time
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy.typing as npt

from robostream.decode.backends import Backend, Decoded, FileRun, PyavBackend
from robostream.decode.clip import Clip, ClipUses, Uses
from robostream.decode.ffmpeg import load_ffmpeg
from robostream.decode.frame_cache import FrameCache
from robostream.decode.frames import DecodedFrame
from robostream.decode.render import Renderer, Size, label_of
from robostream.decode.statistics import Meter
from robostream.errors import VideoFileError

# A decoder that waits in a GOP is given packets for at least so many frames, to the end of a GOP.
_FRAMES_PER_RUN = 64


# Called with each frame that is needed now, as soon as it is decoded.
Deliver = Callable[[int, DecodedFrame], None]


class _WaitingDecoder(NamedTuple):
    """A decoder inside a long GOP of a clip; it gives the frames before `stop`."""

    uses: Uses
    frames: Iterator[Decoded]
    stop: int


class FrameDecoder:
    """Decodes frames on one device. For one thread.

    Args:
        cache: Caches decoded frames.
        meter: Counts what is done and how long it takes.
        backend: Decodes; PyAV on the CPU unless given.
        renderer: Draws, packs and scales frames; on the CPU unless given.
        max_waiting: How many decoders may wait inside long GOPs.
        yuv_sizes: The size of each camera's frames that are delivered as YUV 4:2:0; None for RGB.
    """

    def __init__(
        self,
        cache: FrameCache,
        meter: Meter,
        *,
        backend: Backend | None = None,
        renderer: Renderer | None = None,
        max_waiting: int = 0,
        yuv_sizes: Sequence[Size | None] = (None,),
    ) -> None:
        self.cache = cache
        self._meter = meter
        self._backend = backend or PyavBackend()
        self._renderer = renderer or Renderer(load_ffmpeg())
        self._max_waiting = max_waiting
        self._yuv_sizes = yuv_sizes
        # Decoders inside long GOPs, the least recently used first, and the frame each gives next.
        self._waiting: OrderedDict[Clip, _WaitingDecoder] = OrderedDict()
        self._next_frame: dict[Clip, int] = {}
        # Frames of the batches being built that are not cached: no later batch needs them, or the
        # cache had no room.
        self._uncached: dict[tuple[Uses, int], DecodedFrame] = {}

    @property
    def num_waiting(self) -> int:
        """How many decoders wait inside long GOPs."""
        return len(self._waiting)

    def decode(
        self, requests: Iterable[tuple[Uses, list[int]]], deliver: Deliver | None = None
    ) -> None:
        """Decode frames of clips; cache those that are needed later.

        Each clip may be named once.

        Args:
            requests: The frames to decode. All others that are decoded with them are cached too,
                if they are needed later.
            deliver: Gets each frame that is needed now. Without it, `draw` finds these frames.
        """
        began, elsewhere = time.perf_counter(), self._meter.elsewhere_s
        file_runs: list[FileRun] = []
        owners: list[Uses] = []
        try:
            for uses, wanted in requests:
                clip, frames = uses.clip, sorted(set(wanted))
                if clip.has_long_gops:
                    self._continue(uses, frames)
                    continue
                for run in clip.plan_runs(frames):
                    file_runs.append((clip.file, run))
                    owners.append(uses)
            for place, number, decoded in self._backend.decode(file_runs):
                self._keep(owners[place], number, decoded, deliver)
        finally:
            elsewhere = self._meter.elsewhere_s - elsewhere
            self._meter.decode_s += time.perf_counter() - began - elsewhere

    def draw(self, uses: ClipUses, frames: list[int], out: npt.NDArray[Any]) -> None:
        """Write frames into the slots of a sample and count them as delivered."""
        began = time.perf_counter()
        clip, slots = uses.clip, uses.slots
        found = [slots[frame] for frame in frames]
        are_cached = min(found) >= 0
        if are_cached:
            self.draw_cached(clip, found, out)
        else:
            for place, (frame, slot) in enumerate(zip(frames, found, strict=True)):
                if slot >= 0:
                    self.draw_cached(clip, [slot], out[place : place + 1])
                    continue
                decoded = self._uncached.get((uses, frame))
                if decoded is None:
                    raise_missing(clip, frame)
                self.draw_decoded(clip, decoded, out[place])
        done = uses.deliver(frames)
        if not are_cached:
            self._drop_uncached(uses, [frame for frame in frames if frame not in uses.now])
        if done and not self.cache.keeps_used:
            self.cache.release(uses, done)
        self._meter.images_delivered += len(frames)
        self._meter.convert_s += time.perf_counter() - began

    def draw_cached(self, clip: Clip, slots: list[int], out: npt.NDArray[Any]) -> None:
        """Write cached frames of a clip into an array, (frames, channels, height, width)."""
        packed = self.cache.packed(clip, slots)
        yuv_size = self._yuv_sizes[clip.camera]
        if yuv_size is None:
            self._renderer.draw_packed(packed, out, file=clip.name)
        else:
            for frame, place in zip(packed, out, strict=True):
                label = label_of(frame.layout, yuv_size, clip.name)
                self._renderer.write_yuv(frame.content, place, label=label)
        self._meter.picture_hits += len(slots)

    def draw_decoded(self, clip: Clip, decoded: DecodedFrame, out: npt.NDArray[Any]) -> None:
        """Write a decoded frame into one slot of a sample."""
        yuv_size = self._yuv_sizes[clip.camera]
        if yuv_size is None:
            self._renderer.draw(decoded, out, file=clip.name)
            return
        label = label_of(decoded.layout, yuv_size, clip.name)
        self._renderer.pack_into(decoded, out)
        self._renderer.write_label(out, label)

    def count_evictions(self) -> None:
        """Count the frames that the cache has evicted."""
        self._meter.picture_evictions += self.cache.take_evictions()

    def has(self, uses: Uses, frame: int) -> bool:
        """Return whether a frame is decoded and there."""
        return uses.slots[frame] >= 0 or (uses, frame) in self._uncached

    def has_room(self, frames: int, until: int) -> bool:
        """Return whether so many more frames fit into the cache, with all that are not in it.

        Only frames that are delivered after the next `until` steps may be evicted for them.
        """
        if self._uncached and self.cache.keeps_used:
            return False  # its slots are of no use to frames that it does not take
        return self.cache.has_room(len(self._uncached) + frames, until)

    def close(self, uses: Uses) -> None:
        """Drop the decoded frames and the waiting decoder of a clip."""
        self._drop_uncached(uses, uses.now)
        self.cache.close(uses)
        self._stop(uses.clip)

    def _drop_uncached(self, uses: Uses, frames: Iterable[int]) -> None:
        for frame in frames:
            self._uncached.pop((uses, frame), None)

    def _keep(
        self, uses: Uses, number: int, decoded: DecodedFrame | None, deliver: Deliver | None
    ) -> int:
        """Deliver, cache or hold a decoded frame; return which frame of the clip it is."""
        self._meter.images_decoded += 1
        clip, cache = uses.clip, self.cache
        frame = clip.frame_of(number)
        if decoded is None or frame < 0 or uses.slots[frame] >= 0:
            return frame
        is_needed = frame in uses.now
        # A frame that is delivered for the last time now is not copied.
        is_cached = cache.keeps_used or uses.is_due_later(frame)
        if not (is_needed or is_cached):
            return frame
        began = time.perf_counter()
        if clip.size is not None:
            decoded = self._renderer.scale(decoded, clip.size, file=clip.name)
        if is_needed and deliver is not None:
            deliver(frame, decoded)
            is_needed = False
        drawn = time.perf_counter()
        if is_cached and cache.add(uses, frame, decoded, self._renderer.pack):
            self._uncached.pop((uses, frame), None)  # the cache had no room before
        elif is_needed:
            self._uncached[uses, frame] = decoded
        self._meter.convert_s += drawn - began
        self._meter.copy_s += time.perf_counter() - drawn
        return frame

    def _continue(self, uses: Uses, frames: list[int]) -> None:
        """Decode frames in long GOPs, with the clip's decoder if it is on the way to them."""
        clip = uses.clip
        for frame in frames:
            if self.has(uses, frame):
                continue
            if self._is_on_the_way(clip, frame) and self._run_to(uses, frame):
                continue
            if clip in self._waiting:
                self._retire(clip)
            if not self.has(uses, frame):
                self._start(uses, frame)
                self._run_to(uses, frame)
        if self._next_frame.get(clip) == len(clip):
            self._stop(clip)  # it has given the last frame
        elif clip in self._waiting:
            self._waiting.move_to_end(clip)

    def _is_on_the_way(self, clip: Clip, frame: int) -> bool:
        """Return whether a clip's decoder will give a frame, and no GOP begins in between."""
        following = self._next_frame.get(clip)
        if following is None or frame <= following:
            return frame == following
        return clip.gop_of(frame)[0] <= following

    def _start(self, uses: Uses, frame: int) -> None:
        """Open a decoder for a clip that begins at a frame's GOP."""
        clip = uses.clip
        after = bisect_left(clip.numbers, int(clip.numbers[frame]) + _FRAMES_PER_RUN)
        stop = clip.start_from(after)
        run = clip.plan_runs(range(frame, stop))[0]
        self._waiting[clip] = _WaitingDecoder(uses, self._backend.decode([(clip.file, run)]), stop)
        self._next_frame[clip] = 0
        while len(self._waiting) > self._max_waiting:
            self._retire(next(iter(self._waiting)))

    def _retire(self, clip: Clip) -> None:
        """Close a clip's decoder. If there is room, first cache the frames that it would give.

        Another decoder would have to decode all frames before them again.
        """
        uses, _, stop = self._waiting[clip]
        missing = uses.missing(self._next_frame[clip], stop)
        if missing and self.cache.has_room(len(missing)):
            with contextlib.suppress(VideoFileError):  # the sample that needs the frame raises it
                self._run_to(uses, missing[-1])
        self._stop(clip)

    def _run_to(self, uses: Uses, frame: int) -> bool:
        """Decode up to a frame; return False if the decoder's packets end before it."""
        clip = uses.clip
        for _, number, decoded in self._waiting[clip].frames:
            reached = self._keep(uses, number, decoded, None)
            if reached >= 0:
                self._next_frame[clip] = reached + 1
            if reached == frame:
                return True
        self._stop(clip)
        return False

    def _stop(self, clip: Clip) -> None:
        self._next_frame.pop(clip, None)
        waiting = self._waiting.pop(clip, None)
        if waiting is not None:
            waiting.frames.close()  # type: ignore[attr-defined]  # a generator, which returns its decoder


def raise_missing(clip: Clip, frame: int) -> NoReturn:
    """Raise the error of a frame that its decoder has not given."""
    raise VideoFileError(
        f"{clip.file.source.name}: the decoder gave no image for frame {int(clip.numbers[frame])}. "
        "The file is damaged; download or copy it again."
    )
