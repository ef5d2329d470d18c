# SPDX-License-Identifier: Apache-2.0
"""What an open writer holds, and giving it back if the program drops the writer."""

from __future__ import annotations

import logging
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from robostream.write.episode_buffer import EpisodeBuffer
from robostream.write.lock import WriterLock

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Held:
    """The lock, the encoders of the open episode, and the thread that joins files.

    Attributes:
        joins: The joins that are not done yet.
    """

    lock: WriterLock
    buffer: EpisodeBuffer
    joiner: ThreadPoolExecutor
    joins: list[Future[None]] = field(default_factory=list)


def let_go(held: Held, root: Path) -> None:
    """Give back what a writer holds, when it is collected or when the program ends.

    The garbage collector may call this in any thread at any moment, so it waits for nothing.
    """
    if not held.lock.is_mine:  # this is a forked child; encoders and joins belong to its parent
        held.lock.drop()
        return
    logger.warning(
        "%s: a writer was dropped without finalize(). Its saved episodes are safe; resume the "
        "dataset to bring them in. %d frames were not saved and are lost.",
        *(root, held.buffer.num_frames),
    )
    held.buffer.abandon()
    held.joiner.shutdown(wait=False, cancel_futures=True)
    running = [join for join in held.joins if not join.done()]
    if running:
        # No other writer may begin while a join is running, so the lock is held until it ends.
        running[0].add_done_callback(lambda _: held.lock.drop())
    else:
        held.lock.drop()
