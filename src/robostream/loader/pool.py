# SPDX-License-Identifier: Apache-2.0
"""Episodes at hand: their rows and the future of their pictures, from first need to last."""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from robostream.assemble import Episode, SampleSpec
from robostream.decode import NEVER
from robostream.loader.uses import FrameUses, Ints, frame_uses


@dataclass(frozen=True, slots=True, eq=False)
class _Resident:
    episode: Episode
    uses: dict[str, FrameUses]


class EpisodePool:
    """Loads each episode once, when its first sample is built, and drops it after its last.

    Thread-safe. The pool is also the oracle the frame engine asks when a picture is needed next.

    Args:
        load: Reads an episode from its files.
        times: Returns, for an episode, when each of its samples is delivered by this process, and
            NEVER for the others.
        spec: What a sample holds.
    """

    def __init__(
        self, load: Callable[[int], Episode], times: Callable[[int], Ints], spec: SampleSpec
    ) -> None:
        self._load = load
        self._times = times
        self._spec = spec
        self._residents: dict[int, Future[_Resident]] = {}
        self._leaving: list[tuple[int, int]] = []
        self._by_file: dict[str, dict[tuple[int, str], _Resident]] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._residents)

    def get(self, episode: int) -> Episode:
        """Return an episode; two threads that want it at once share one load."""
        with self._lock:
            found = self._residents.get(episode)
            mine = found is None
            if found is None:
                found = self._residents[episode] = Future()
        if mine:
            self._enter(episode, found)
        return found.result().episode

    def next_uses(self, file: str, frames: Ints, after: int) -> Ints:
        """Return when pictures of a video file are needed after a time, a row for each."""
        with self._lock:
            entries = list(self._by_file.get(file, {}).items())
        first, last = int(frames.min()), int(frames.max())
        found = []
        for (_, key), resident in entries:
            span = resident.episode.spans[key]
            # A file may hold hundreds of episodes; the frames asked for are mostly those of one.
            if span.within[0] <= last and first < span.within[1]:
                inside, own = _inside(span.numbers, frames)
                found.append((inside, resident.uses[key].after(own, after)))
        columns = max([uses.shape[1] for _, uses in found], default=1)
        result = np.full((len(frames), columns), NEVER)
        for inside, uses in found:
            result[inside, : uses.shape[1]] = uses
        return result

    def retire(self, time: int) -> None:
        """Drop the episodes whose last sample was delivered before `time`."""
        with self._lock:
            while self._leaving and self._leaving[0][0] < time:
                _, episode = heapq.heappop(self._leaving)
                resident = self._residents.pop(episode).result()
                for key, span in resident.episode.spans.items():
                    self._by_file[span.file].pop((episode, key))
                    if not self._by_file[span.file]:
                        del self._by_file[span.file]

    def _enter(self, episode: int, promise: Future[_Resident]) -> None:
        try:
            resident, last = self._make(episode)
        except BaseException as error:
            with self._lock:
                del self._residents[episode]
            promise.set_exception(error)
            raise
        with self._lock:
            for key, span in resident.episode.spans.items():
                self._by_file.setdefault(span.file, {})[episode, key] = resident
            heapq.heappush(self._leaving, (last, episode))
        promise.set_result(resident)

    def _make(self, episode: int) -> tuple[_Resident, int]:
        loaded = self._load(episode)
        times = self._times(episode)
        now = np.zeros(1, np.int64)
        windows = {key: self._spec.windows.get(key, now) for key in self._spec.videos}
        uses = {key: frame_uses(offsets, times) for key, offsets in windows.items()}
        ours = times[times != NEVER]
        # A stand-in for a quarantined place may need an episode that is otherwise not ours.
        last = int(ours.max()) if len(ours) else -1
        return _Resident(loaded, uses), last


def _inside(own: Ints, numbers: Ints) -> tuple[npt.NDArray[np.bool_], Ints]:
    """Return which file-wide numbers are frames of an episode, and which frames those are."""
    frames = np.minimum(np.searchsorted(own, numbers), len(own) - 1)
    inside = own[frames] == numbers
    return inside, frames[inside]
