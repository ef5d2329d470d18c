# SPDX-License-Identifier: Apache-2.0
"""The training loop."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from examples.scaling.checkpoint import choose_checkpoint, write_checkpoint
from examples.scaling.feed import Feed
from examples.scaling.files import LineLog
from examples.scaling.learner import Learner, random_state
from examples.scaling.map_feed import MapFeed
from examples.scaling.options import TrainOptions
from examples.scaling.preemption import StopRequest, stop_on_signals
from examples.scaling.processes import Processes
from examples.scaling.progress import Progress
from examples.scaling.receipts import Receipts
from examples.scaling.stream_feed import StreamFeed
from examples.scaling.validation import Validation, choose_split
from robostream import load_training_step

LOG, ORDER_LOG, VALIDATION_LOG = "log.jsonl", "order.jsonl", "validation.jsonl"
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended.

    Attributes:
        step: Steps taken, including those before a resume.
        is_finished: Whether all steps are done; otherwise a signal stopped the run.
        checkpoint: The last checkpoint.
    """

    step: int
    is_finished: bool
    checkpoint: Path


def train(options: TrainOptions) -> Outcome:
    """Train until all steps are done or a signal stops the run; both end with a checkpoint.

    Every process of a run calls this.
    """
    with stop_on_signals() as stop, ExitStack() as held:
        processes = Processes(options.mixed_precision)
        chosen = processes.gather(choose_checkpoint(options.resume_from, options.output_dir))[0]
        split = choose_split(options, chosen) if processes.is_main else None
        options = replace(options, split=processes.gather(split)[0])
        feed: Feed = (MapFeed if options.map_style else StreamFeed)(processes, options)
        held.callback(feed.close)
        outcome = _Run(processes, options, feed, chosen, held).run(stop)
        if processes.is_main:
            end = "all steps are done" if outcome.is_finished else "stopped by a signal"
            logger.info("step %d, %s; %s", outcome.step, end, outcome.checkpoint)
        processes.close()
    return outcome


class _Run:
    """The state of a run after `step` steps; `held` closes its files."""

    def __init__(
        self,
        processes: Processes,
        options: TrainOptions,
        feed: Feed,
        checkpoint: Path | None,
        held: ExitStack,
    ) -> None:
        self.processes, self.options, self.feed = processes, options, feed
        self.learner = Learner(processes, options, feed.dataset)
        self.checkpoint = checkpoint
        self.step = 0
        self.logs: list[LineLog] = []
        if checkpoint is not None:
            self.step = load_training_step(checkpoint).step
            feed.resume(checkpoint)
            self.learner.resume(checkpoint)
        log = self._open_log(LOG, held)
        self.progress = Progress(processes, log, feed.dataset, step=self.step, steps=options.steps)
        held.callback(self.progress.close)
        self.validation: Validation | None = None
        if options.split is not None and not options.dummy:
            log = self._open_log(VALIDATION_LOG, held)
            self.validation = Validation(processes, options, feed.dataset, log)
        self.receipts = Receipts(self._open_log(ORDER_LOG, held), feed.order)
        if checkpoint is not None:
            self.receipts.resume(checkpoint)
            if processes.is_main:
                logger.info("resuming from step %d, %s", self.step, checkpoint)

    def _open_log(self, name: str, held: ExitStack) -> LineLog | None:
        if not self.processes.is_main:
            return None
        self.options.output_dir.mkdir(parents=True, exist_ok=True)
        log = LineLog(self.options.output_dir / name, self.step)
        held.callback(log.close)
        self.logs.append(log)
        return log

    def run(self, stop: StopRequest) -> Outcome:
        """Take the remaining steps."""
        options, batches = self.options, self.feed.batches()
        must_stop = False
        while self.step < options.steps and not must_stop:
            with self.progress.waiting():
                batch = next(batches)
            losses = self.learner.learn(batch.batch)
            self.step += 1
            # A signal may reach only some processes; all of them stop at the same step.
            asked, digest = self.processes.add_up(stop.is_made, batch.digest)
            must_stop = asked > 0
            self.receipts.add(self.step, batch, digest)
            self.progress.add(batch.batch, losses)
            if self._is_due(options.log_freq):
                self.progress.report(self.step, batch.epoch, losses, self.learner.rate)
            if must_stop or self._is_due(options.save_freq):
                if self.validation is not None and not must_stop:
                    self.validation.report(self.step, self.learner.policy)
                self.checkpoint = self._save()
        assert self.checkpoint is not None
        return Outcome(self.step, self.step >= options.steps, self.checkpoint)

    def _is_due(self, every: int) -> bool:
        return self.step % every == 0 or self.step == self.options.steps

    def _save(self) -> Path:
        """Write a checkpoint in the main process; all processes wait for it."""
        random_states = self.processes.gather(random_state())

        def fill(folder: Path) -> None:
            for log in self.logs:
                log.sync()  # a checkpoint is never ahead of its logs
            self.learner.save(folder, random_states)
            self.receipts.save(folder)
            self.feed.save(folder, self.step)

        output_dir = self.options.output_dir
        if self.processes.is_main:
            keep = self.options.keep_checkpoints
            write_checkpoint(output_dir, self.step, fill, keep=keep)
        self.processes.wait()
        return output_dir / f"checkpoint-{self.step}"
