# SPDX-License-Identifier: Apache-2.0
"""The progress of a run over all processes: losses, samples per second, time spent waiting."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor
from tqdm import tqdm

from examples.scaling.files import LineLog
from examples.scaling.processes import Processes

logger = logging.getLogger(__name__)


class Progress:
    """Counts this process's samples and waiting time, and reports the sums of all processes."""

    def __init__(self, processes: Processes, log: LineLog | None, *, step: int, steps: int) -> None:
        self._processes = processes
        self._log = log
        # Only the main process shows a bar, and only on a terminal.
        hidden = None if processes.is_main else True
        self._bar = tqdm(
            total=steps,
            initial=step,
            desc="train",
            bar_format="{desc} {percentage:3.0f}% |{bar}| {remaining} left{postfix}",
            dynamic_ncols=True,
            disable=hidden,
        )
        self._steps, self._first, self._start = steps, step, time.perf_counter()
        self._begin()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Count the time in this block as time spent waiting for data."""
        began = time.perf_counter()
        yield
        self._wait_s += time.perf_counter() - began

    def add(self, samples: int) -> None:
        """Count a step."""
        self._samples += samples
        self._bar.update()

    def report(self, step: int, epoch: int, losses: dict[str, Tensor], rate: float) -> None:
        """Log the losses of a step, and the throughput since the last report. Blocks.

        The losses are means over all processes, whose batches have equal sizes.
        """
        count = self._processes.count
        values = [float(value) for value in losses.values()]  # waits for the device
        seconds = time.perf_counter() - self._began
        sums = self._processes.add_up_floats(*values, self._samples, self._wait_s, seconds)
        *values, samples, wait_s, seconds = sums
        line: dict[str, Any] = {"step": step, "epoch": epoch}
        line |= {name: value / count for name, value in zip(losses, values, strict=True)}
        line |= {
            "learning_rate": rate,
            "samples": int(samples),
            "seconds": seconds / count,
            "samples_per_s": samples * count / seconds,
            "data_wait_share": wait_s / seconds,
        }
        if self._log is not None:
            self._log.write(line)
            self._bar.set_postfix_str(_describe(line), refresh=False)
            logger.info("step %d: %s, %s left", step, _describe(line), self._time_left(step))
        self._begin()

    def close(self) -> None:
        """Close the bar and leave it on the terminal."""
        self._bar.close()

    def _time_left(self, step: int) -> str:
        seconds = (time.perf_counter() - self._start) / max(step - self._first, 1)
        return str(tqdm.format_interval((self._steps - step) * seconds))

    def _begin(self) -> None:
        self._samples, self._wait_s = 0, 0.0
        self._began = time.perf_counter()


def _describe(line: dict[str, Any]) -> str:
    return (
        f"loss {line['loss']:.4f}, epoch {line['epoch']}, {line['samples_per_s']:.1f} samples/s, "
        f"waited {line['data_wait_share']:.1%}"
    )
