# SPDX-License-Identifier: Apache-2.0
"""`StreamingDataLoader`: a torch DataLoader that knows where it stands."""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator, Mapping
from multiprocessing.connection import wait
from typing import Any

from torch.utils.data import DataLoader
from tqdm import tqdm

from robostream.errors import SelectionError
from robostream.loader.batches import BatchStream, Payload
from robostream.loader.options import batches_of, choose_depth
from robostream.loader.streaming import StreamingLeRobotDataset
from robostream.loader.tally import Tally
from robostream.plan import (
    Cursor,
    Cut,
    advance,
    capture_state,
    cursor_from_batches,
    dropped_frames,
    steps_left,
)

logger = logging.getLogger(__name__)

# A process closes its connections a moment before it counts as ended.
_DYING_S = 1.0


class StreamingDataLoader(DataLoader[Any]):
    """Delivers the batches of a StreamingLeRobotDataset in the one order, resumable at any batch.

    The loader counts what it has delivered, not what is prefetched, so `state_dict()` is exact at
    any moment, with any number of workers. Threads in one process share decoded frames, so
    `num_workers=0` (all work in threads of this process) or 1 is the fastest; more are exact too.

    An iterator that runs to its end is followed by the next epoch, and so is one that is left
    early: `load_state_dict` continues in the middle.

    Args:
        dataset: The stream.
        batch_size: Samples per batch of this rank.
        num_workers: Worker processes; 0 for none.
        drop_last: Whether to drop the frames at the end that do not fill a global batch; otherwise
            the last batches are shorter, and completed so that all ranks deliver equally many.
        pin_memory: Copy batches to page-locked memory.
        prefetch_factor: Batches built ahead, per worker.
        persistent_workers: Keep workers from epoch to epoch.
        multiprocessing_context: "fork", "spawn" or "forkserver".
        timeout: Seconds to wait for a worker's batch; 0 waits for ever.
        progress: Show a progress bar (on a terminal only).
    """

    def __init__(
        self,
        dataset: StreamingLeRobotDataset,
        batch_size: int = 1,
        *,
        num_workers: int = 0,
        drop_last: bool = False,
        pin_memory: bool = False,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        multiprocessing_context: Any = None,
        timeout: float = 0,
        progress: bool = False,
    ) -> None:
        if not isinstance(dataset, StreamingLeRobotDataset):
            raise SelectionError(
                f"want a StreamingLeRobotDataset, got {type(dataset).__name__}; a map-style "
                "dataset goes with torch's DataLoader and EpisodeAwareSampler"
            )
        if not isinstance(batch_size, int) or batch_size < 1:
            raise SelectionError(f"batch_size must be a whole number above 0, got {batch_size!r}")
        self.stream = dataset
        self.cut = Cut(dataset.rank.rank, dataset.rank.world_size, batch_size, drop_last)
        # Refuses, with the reason, an epoch that would deliver nothing.
        advance(self.cut, dataset.num_frames, Cursor(0, 0), 0)
        depth = choose_depth(prefetch_factor, batch_size * dataset.sample_bytes)
        super().__init__(
            BatchStream(dataset, self.cut, depth=depth),
            batch_size=None,
            collate_fn=_as_it_is,
            num_workers=num_workers,
            pin_memory=pin_memory,
            prefetch_factor=depth if num_workers else None,
            persistent_workers=persistent_workers,
            multiprocessing_context=multiprocessing_context,
            timeout=timeout,
        )
        self.progress = progress
        self.tally = Tally(dataset.workshops.stats)
        self._cursor = Cursor(*dataset.epochs.peek())
        self._staged = True
        self._said_dropped = False
        self._current: Generator[dict[str, Any], None, None] | None = None

    def __len__(self) -> int:
        """Return the number of batches of a whole epoch."""
        return steps_left(self.cut, self.stream.num_frames, 0)

    def __iter__(self) -> Iterator[dict[str, Any]]:  # type: ignore[override]
        if self._current is not None:
            self._current.close()
        if not self._staged:
            self._cursor = Cursor(self._cursor.epoch + bool(self._cursor.position), 0)
        self._staged = False
        self._current = self._epoch()
        return self._current

    def state_dict(self) -> dict[str, Any]:
        """Return where the run stands after the batches delivered so far.

        Plain JSON values, the same on every rank; any world size, batch size and number of workers
        can go on from it. It holds the order's receipt and the episodes set aside.
        """
        stream = self.stream
        plan = stream.quarantine.plan_of(stream.plan(self._cursor.epoch))
        state = capture_state(plan, self._cursor.position, fingerprint=stream.meta.fingerprint)
        return state.to_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Make the next iterator go on where a state stands.

        Also takes {"batches_consumed", "batch_size"}: the batches each rank of this world size has
        taken since epoch 0.
        """
        self._stop()
        if "batches_consumed" in state:
            batches_of(state)
            self._cursor = cursor_from_batches(state, self.cut, self.stream.num_frames)
        else:
            self.stream.load_state_dict(state)
            self._cursor = Cursor(*self.stream.epochs.peek())
        self._staged = True

    def set_epoch(self, epoch: int) -> None:
        """Make the next iterator begin `epoch`, unless a loaded state stands in that epoch."""
        if not (self._staged and self._cursor.epoch == epoch):
            self._cursor = Cursor(epoch, 0)
            self._staged = True

    def stats(self) -> dict[str, float]:
        """Return a flat dict of counters and rates, ready for a logger."""
        return self.tally.stats()

    def _stop(self) -> None:
        """End the running iterator, and kept workers too: they hold the settings of before."""
        if self._current is not None:
            self._current.close()
        self._iterator = None

    def _epoch(self) -> Generator[dict[str, Any], None, None]:
        start = self._cursor
        self._say_what_is_dropped(start)
        self.stream.epochs.set(start.epoch, start.position)
        total = steps_left(self.cut, self.stream.num_frames, start.position)
        # Without workers torch's own iterator would only add its book-keeping to every batch.
        is_plain = self.num_workers == 0 and not self.pin_memory
        payloads = iter(self.dataset) if is_plain else super().__iter__()
        bar = tqdm(total=total, unit="batch", disable=None if self.progress else True)
        try:
            with self.tally.epoch(), bar:
                for step in range(1, total + 1):
                    with self.tally.waiting():
                        batch, bad = _next(payloads)
                    self.stream.quarantine.merge(bad)
                    self._cursor = advance(self.cut, self.stream.num_frames, start, step)
                    self.tally.add(len(batch["index"]))
                    if not bar.disable:
                        bar.set_postfix_str(self.tally.line(), refresh=False)
                        bar.update()
                    yield batch
        finally:
            _close(payloads)
        self._report(start.epoch)

    def _say_what_is_dropped(self, start: Cursor) -> None:
        dropped = dropped_frames(self.cut, self.stream.num_frames, start.position)
        if dropped and not self._said_dropped:
            logger.warning(
                "drop_last: the last %d of %d frames of each epoch do not fill a global batch of "
                "%d and are not delivered",
                dropped,
                self.stream.num_frames,
                self.cut.step_size,
            )
            self._said_dropped = True

    def _report(self, epoch: int) -> None:
        logger.info("epoch %d: %s", epoch, self.tally.line())
        bad = self.stream.quarantine.reasons()
        if bad:
            listed = "; ".join(f"episode {number}: {reason}" for number, reason in bad.items())
            logger.warning("epoch %d: %d episodes were set aside: %s", epoch, len(bad), listed)


def _as_it_is(payload: Any) -> Any:
    # Batches are built of tensors and texts; torch would look at each of them again.
    return payload


def _next(payloads: Iterator[Payload]) -> Payload:
    try:
        return next(payloads)
    except (OSError, EOFError) as error:
        # A batch on its way from a worker that is gone cannot be opened; torch says that it was
        # killed only where it was waiting for the next one.
        workers = {w.sentinel: w.pid for w in getattr(payloads, "_workers", [])}
        dead = [workers[sentinel] for sentinel in wait(list(workers), timeout=_DYING_S)]
        if not dead:
            raise
        raise RuntimeError(
            f"loader worker (pid {', '.join(map(str, dead))}) exited unexpectedly, before its "
            "batch was taken over. Was it killed, or out of memory?"
        ) from error


def _close(payloads: Any) -> None:
    # Our generator holds threads; asking it to close ends them now rather than when garbage is
    # collected. Torch's iterator of a loader without workers holds it inside.
    fetcher = getattr(payloads, "_dataset_fetcher", None)
    inner = getattr(fetcher, "dataset_iter", payloads)
    if isinstance(inner, Generator):
        inner.close()
