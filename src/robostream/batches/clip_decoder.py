# SPDX-License-Identifier: Apache-2.0
"""Decodes the pictures of reels and draws them into batches, on the CPU or on a GPU."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy.typing as npt

from robostream.assemble import describe_size_mismatch
from robostream.batches.clip import Clip, is_long
from robostream.batches.frame_cache import FrameCache, PrivateFrameCache
from robostream.decode import (
    Backend,
    DecodedFrame,
    FileRun,
    FrameLayout,
    FrameScaler,
    Meter,
    PyavBackend,
    Renderer,
    Size,
    label_of,
    load_ffmpeg,
    plan_runs,
)
from robostream.device import DeviceRenderer, DeviceScaler, device_memory, open_nvdec
from robostream.errors import VideoFileError

# A decoder that is kept is given packets for at least so many frames, up to the end of a GOP.
_FRAMES_PER_DECODING = 64


class Tools(NamedTuple):
    """What a projector works with; all for pictures in the same kind of memory.

    Attributes:
        backend: What decodes.
        shelf: Where decoded pictures wait for their delivery.
        renderer: Draws and copies pictures.
        scaler: Scales them.
    """

    backend: Backend
    shelf: FrameCache
    renderer: Renderer
    scaler: FrameScaler


def tools_on_cpu(shelf: FrameCache) -> Tools:
    """Return what decodes on the CPU."""
    renderer = Renderer(load_ffmpeg())
    return Tools(PyavBackend(), shelf, renderer, FrameScaler(renderer))


def tools_on_gpu(device: str, frame_bytes: int) -> Tools:
    """Return what decodes on a GPU, such as "cuda:0", and keeps pictures there."""
    shelf = PrivateFrameCache(frame_bytes, device_memory(frame_bytes, device))
    return Tools(open_nvdec(device), shelf, DeviceRenderer(), DeviceScaler())


class ClipDecoder:
    """One process's decoder. For one thread.

    Args:
        tools: What it works with.
        meter: Counts what is done and how long it takes.
        max_decodings: How many decoders may wait in the middle of a GOP.
        sizes: What each camera's pictures are scaled to; None for their own size.
        parcels: The size of each camera's pictures that are delivered as parcels; None for RGB.
    """

    def __init__(
        self,
        tools: Tools,
        meter: Meter,
        *,
        max_decodings: int,
        sizes: Sequence[Size | None],
        parcels: Sequence[Size | None],
    ) -> None:
        self._backend, self._shelf, self._renderer, self._scaler = tools
        self._meter = meter
        self._max_decodings = max_decodings
        self._sizes = sizes
        self._parcels = parcels
        self._waiting: OrderedDict[Clip, None] = OrderedDict()
        # Pictures of the batch being built that are not in the shelf: this batch is the last to
        # need them, or the shelf had no slot for them.
        self._loose: dict[tuple[Clip, int], DecodedFrame] = {}

    def decode(self, wanted: Iterable[tuple[Clip, list[int]]]) -> None:
        """Decode pictures of reels, ascending, and keep those that later batches need too.

        Each reel may be named once.
        """
        began, elsewhere = time.perf_counter(), self._meter.elsewhere_s
        file_runs: list[FileRun] = []
        owners: list[Clip] = []
        try:
            for reel, pictures in wanted:
                if is_long(reel):
                    self._go_on(reel, pictures)
                    continue
                runs = plan_runs(reel.file.index, reel.numbers_of(pictures))
                file_runs += [FileRun(reel.file.source, reel.file.index, run) for run in runs]
                owners += [reel] * len(runs)
            for place, number, decoded in self._backend.decode(file_runs):
                self._keep(owners[place], number, decoded)
        finally:
            elsewhere = self._meter.elsewhere_s - elsewhere
            self._meter.decode_s += time.perf_counter() - began - elsewhere

    def draw(self, reel: Clip, pictures: list[int], out: npt.NDArray[Any]) -> None:
        """Write pictures into the slots of a sample and count them as delivered."""
        began = time.perf_counter()
        slots = [reel.slots[picture] for picture in pictures]
        if min(slots) >= 0:
            self._draw_kept(reel, slots, out)
        else:
            for place, (picture, slot) in enumerate(zip(pictures, slots, strict=True)):
                if slot >= 0:
                    self._draw_kept(reel, [slot], out[place : place + 1])
                else:
                    self._draw_loose(reel, picture, out[place])
        for picture in pictures:
            reel.left[picture] -= 1
            if not reel.left[picture] and reel.slots[picture] >= 0:
                self._shelf.release(reel.slots[picture])
                reel.slots[picture] = -1
        reel.waiting -= len(pictures)
        self._meter.images_delivered += len(pictures)
        self._meter.convert_s += time.perf_counter() - began

    def end_batch(self) -> None:
        """Forget the pictures that are not in the shelf."""
        self._loose.clear()

    def close(self, reel: Clip) -> None:
        """Give back the slots and the decoder of a reel."""
        for picture, slot in enumerate(reel.slots):
            if slot >= 0:
                self._shelf.release(slot)
                reel.slots[picture] = -1
        self._stop(reel)

    def _draw_kept(self, reel: Clip, slots: list[int], out: npt.NDArray[Any]) -> None:
        layout = reel.layout
        assert layout is not None
        memory = list(map(self._shelf.memory, slots))
        if self._check_size(reel, layout, out):
            self._renderer.draw_packed(memory, layout, out, file=reel.file.name)
        else:
            label = label_of(layout, file=reel.file.name)
            for slot, parcel in zip(memory, out, strict=True):
                self._renderer.write_yuv(slot.content, parcel, label=label)
        self._meter.picture_hits += len(slots)

    def _draw_loose(self, reel: Clip, picture: int, out: npt.NDArray[Any]) -> None:
        loose = self._loose.get((reel, picture))
        if loose is None:
            raise VideoFileError(
                f"{reel.file.source.name}: the decoder gave no picture for frame "
                f"{int(reel.numbers[picture])}. The file is damaged; download or copy it again."
            )
        if self._check_size(reel, loose.layout, out):
            self._renderer.draw(loose, out, file=reel.file.name)
        else:
            label = label_of(loose.layout, file=reel.file.name)
            self._renderer.pack_into(loose, out)
            self._renderer.write_label(out, label)

    def _check_size(self, reel: Clip, layout: FrameLayout, out: npt.NDArray[Any]) -> bool:
        """Return whether a picture is drawn, and not put in a parcel; raise if it does not fit."""
        parcel = self._parcels[reel.camera]
        height, width = parcel or out.shape[-2:]
        if layout.shape[1:] != (height, width):
            raise VideoFileError(
                f"{reel.file.source.name}: episode {reel.episode}: "
                + describe_size_mismatch((layout.width, layout.height), (width, height))
            )
        return parcel is None

    def _keep(self, reel: Clip, number: int, decoded: DecodedFrame | None) -> None:
        self._meter.images_decoded += 1
        picture = reel.picture_of(number)
        if decoded is None or picture < 0 or reel.slots[picture] >= 0:
            return
        now = reel.now.get(picture, 0)
        # A picture that is delivered for the last time by this batch need not be copied.
        is_kept = now < reel.left[picture] or self._shelf.keeps_used
        if not (now or is_kept):
            return
        if self._sizes[reel.camera] is not None:
            decoded = self._scale(reel, decoded)
        slot = self._put_away(reel, picture, decoded) if is_kept else None
        if now and slot is None:
            self._loose[reel, picture] = decoded

    def _scale(self, reel: Clip, decoded: DecodedFrame) -> DecodedFrame:
        began = time.perf_counter()
        scaled = self._scaler.scale(decoded, self._sizes[reel.camera], file=reel.file.name)
        self._meter.convert_s += time.perf_counter() - began
        return scaled

    def _put_away(self, reel: Clip, picture: int, decoded: DecodedFrame) -> int | None:
        began = time.perf_counter()
        layout = decoded.layout
        if reel.layout is None:
            reel.layout = layout
        # A picture of another size than the reel's first is not kept: the reel has one layout.
        slot = self._shelf.take(reel, picture, layout) if layout is reel.layout else None
        if slot is not None:
            self._renderer.pack(decoded, self._shelf.memory(slot))
            self._shelf.publish(slot, layout)
            reel.slots[picture] = slot
        self._meter.copy_s += time.perf_counter() - began
        return slot

    def _go_on(self, reel: Clip, pictures: list[int]) -> None:
        """Decode pictures in long GOPs, with the reel's decoder if it is on the way to them."""
        for picture in pictures:
            if reel.slots[picture] >= 0 or (reel, picture) in self._loose:
                continue
            is_coming = reel.decoding is not None and self._is_on_the_way(reel, picture)
            if not (is_coming and self._run_to(reel, picture)):
                self._start(reel, picture)
                self._run_to(reel, picture)
        if reel.decoding_at == len(reel):
            self._stop(reel)  # it has given the last picture
        elif reel in self._waiting:
            self._waiting.move_to_end(reel)  # it was used last

    def _is_on_the_way(self, reel: Clip, picture: int) -> bool:
        """Return whether a reel's decoder will give a picture, and no GOP begins in between."""
        if picture <= reel.decoding_at:
            return picture == reel.decoding_at
        start, _ = reel.file.index.gop_of(int(reel.numbers[picture]))
        return start <= int(reel.numbers[reel.decoding_at])

    def _start(self, reel: Clip, picture: int) -> None:
        index = reel.file.index
        stop = index.start_from(int(reel.numbers[picture]) + _FRAMES_PER_DECODING)
        numbers = reel.numbers[picture:]
        run = plan_runs(index, numbers[numbers < stop])[0]
        reel.decoding = iter(self._backend.decode([FileRun(reel.file.source, index, run)]))
        reel.decoding_at = 0
        self._waiting[reel] = None
        while len(self._waiting) > self._max_decodings:
            self._stop(next(iter(self._waiting)))

    def _run_to(self, reel: Clip, picture: int) -> bool:
        """Decode up to a picture; return False if the decoder's packets end before it."""
        assert reel.decoding is not None
        for _, number, decoded in reel.decoding:
            self._keep(reel, number, decoded)
            reached = reel.picture_of(number)
            if reached >= 0:
                reel.decoding_at = reached + 1
            if reached == picture:
                return True
        self._stop(reel)
        return False

    def _stop(self, reel: Clip) -> None:
        self._waiting.pop(reel, None)
        decoding, reel.decoding = reel.decoding, None
        if decoding is not None:
            decoding.close()  # type: ignore[attr-defined]  # a generator, which returns its decoder
