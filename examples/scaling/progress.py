# SPDX-License-Identifier: Apache-2.0
"""The progress of a run over all processes: losses, samples per second, time spent waiting."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from examples.act import SAMPLE_LOSSES, Batch
from examples.scaling.feed import TrainingData
from examples.scaling.files import LineLog
from examples.scaling.processes import Processes
from robostream import MixtureDataset

logger = logging.getLogger(__name__)


class Progress:
    """Counts this process's samples and waiting time, and reports the sums of all processes."""

    def __init__(
        self,
        processes: Processes,
        log: LineLog | None,
        dataset: TrainingData,
        *,
        step: int,
        steps: int,
    ) -> None:
        self._processes = processes
        self._log = log
        self._datasets = DatasetLosses(dataset)
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

    def add(self, batch: Batch, losses: dict[str, Tensor]) -> None:
        """Count a step."""
        self._samples += len(batch["index"])
        if SAMPLE_LOSSES in losses:
            self._datasets.add(batch, losses[SAMPLE_LOSSES])
        self._bar.update()

    def report(self, step: int, epoch: int, losses: dict[str, Tensor], rate: float) -> None:
        """Log the losses of a step, and the throughput since the last report. Blocks.

        The losses are means over all processes, whose batches have equal sizes.
        """
        count = self._processes.count
        losses = {name: value for name, value in losses.items() if name != SAMPLE_LOSSES}
        values = [float(value) for value in losses.values()]  # waits for the device
        seconds = time.perf_counter() - self._began
        sums = self._processes.add_up_floats(*values, self._samples, self._wait_s, seconds)
        *values, samples, wait_s, seconds = sums
        line: dict[str, Any] = {"step": step, "epoch": epoch}
        line |= {name: value / count for name, value in zip(losses, values, strict=True)}
        line |= self._datasets.take(self._processes)
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


class DatasetLosses:
    """The mean loss of each dataset's samples in a mixture since the last report."""

    def __init__(self, dataset: TrainingData) -> None:
        shares = dataset.shares if isinstance(dataset, MixtureDataset) else []
        names = [share.name for share in shares]
        self._names = [f"{d} ({n})" if names.count(d) > 1 else d for n, d in enumerate(names)]
        self._sums = torch.zeros(2, len(shares), dtype=torch.float64)

    def add(self, batch: Batch, losses: Tensor) -> None:
        """Add the losses of a batch's samples. Does not wait for the device."""
        if self._names:
            self._sums = self._sums.to(losses.device)
            parts = torch.stack([losses.double(), torch.ones_like(losses, dtype=torch.float64)])
            self._sums.index_add_(1, batch["dataset_index"].to(losses.device), parts)

    def take(self, processes: Processes) -> dict[str, dict[str, float]]:
        """Return the means over all processes, of datasets that had samples; begin again."""
        if not self._names:
            return {}
        sums = processes.add_up_floats(*self._sums.flatten().tolist())
        self._sums.zero_()
        found = zip(self._names, sums[: len(self._names)], sums[len(self._names) :], strict=True)
        return {"loss_by_dataset": {name: loss / n for name, loss, n in found if n}}


def _describe(line: dict[str, Any]) -> str:
    return (
        f"loss {line['loss']:.4f}, epoch {line['epoch']}, {line['samples_per_s']:.1f} samples/s, "
        f"waited {line['data_wait_share']:.1%}"
    )
