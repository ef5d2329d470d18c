# SPDX-License-Identifier: Apache-2.0
"""Puts the frames chosen to be kept into the store while they are decoded."""

from __future__ import annotations

import time

import av

from robostream.decode.choice import Choice
from robostream.decode.metering import Meter
from robostream.decode.render import Layout, Renderer, layout_of
from robostream.decode.store import FrameStore


class Keeper:
    """Keeps the frames of one decoding. For one thread; `close` or `abandon` must be called."""

    def __init__(
        self, store: FrameStore, file: str, choice: Choice, renderer: Renderer, meter: Meter
    ) -> None:
        self._store = store
        self._file = file
        self._choice = choice
        self._renderer = renderer
        self._meter = meter
        self._places = {frame: place for place, frame in enumerate(choice.keep)}
        self._layout: Layout | None = None
        self._slots: list[int] = []
        self._filled: list[int] = []

    def keep(self, frame: int, picture: av.VideoFrame) -> None:
        """Copy a frame into the store if it was chosen and there is room."""
        place = self._places.get(frame)
        if place is None:
            return
        began = time.perf_counter()
        layout = layout_of(picture)
        if self._layout is None:
            self._layout = layout
            self._slots = self._store.reserve(layout, self._choice.uses[:, 0])
        # A picture of another size than the first is not kept: the slots are cut for the first.
        if place < len(self._slots) and layout is self._layout:
            memory = self._store.memory(self._slots[place])
            self._renderer.pack(picture, layout, memory, file=self._file)
            self._filled.append(place)
        self._meter.copy_s += time.perf_counter() - began

    def close(self) -> Layout | None:
        """Make known what was kept, give back what was not used; return the layout if one was seen.

        What is kept is seen by others only now, so that they never see half a picture.
        """
        if self._layout is None:
            return None
        frames = [self._choice.keep[place] for place in self._filled]
        slots = [self._slots[place] for place in self._filled]
        uses = self._choice.uses[self._filled]
        self._store.publish(self._layout, self._file, frames, slots, uses)
        self._store.release(sorted(set(self._slots).difference(slots)))
        return self._layout

    def abandon(self) -> None:
        """Keep nothing: after an error it is not certain which frame is which."""
        self._store.release(self._slots)
