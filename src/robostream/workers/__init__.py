# SPDX-License-Identifier: Apache-2.0
"""Worker processes, which build batches in memory they share with the consumer. No torch.

The consumer is the process that iterates over a loader.

channel.py        messages and file descriptors between two processes
messages.py       what the consumer and its workers say to each other
worker_loop.py        one worker's work for all live iterators
worker_main.py        the program of a worker process
start.py          starting and ending worker processes, undisturbed by signals
turns.py          one thread at a time, where several iterators use one crew
pool.py               the worker processes of one loader, as the consumer uses them
in_process.py         the same work done in the consumer's own process
"""

from robostream.workers.in_process import InProcessPool
from robostream.workers.messages import Failed, WorkerConfig, WorkerIdentity
from robostream.workers.pool import WorkerPool, park_at_shutdown
from robostream.workers.start import signals_held
from robostream.workers.worker_loop import WorkerLoop

__all__ = [
    "WorkerPool",
    "Failed",
    "WorkerIdentity",
    "InProcessPool",
    "WorkerConfig",
    "WorkerLoop",
    "park_at_shutdown",
    "signals_held",
]
