# SPDX-License-Identifier: Apache-2.0
"""Worker processes, which build batches in memory they share with the consumer. No torch.

The consumer is the process that iterates over a loader.

protocol.py     the messages between the consumer and its workers, and their channel
processes.py    starting and ending worker processes, undisturbed by signals
worker_main.py  one worker's work for all live iterators, and the program around it
batch_pool.py   what pools share, and InProcessPool: the consumer builds batches itself
pool.py         WorkerPool: the worker processes of one loader
"""

from robostream.workers.batch_pool import InProcessPool
from robostream.workers.pool import WorkerPool
from robostream.workers.processes import park_at_shutdown, signals_held
from robostream.workers.protocol import Failed, WorkerConfig
from robostream.workers.worker_main import Worker

__all__ = [
    "Failed",
    "InProcessPool",
    "Worker",
    "WorkerConfig",
    "WorkerPool",
    "park_at_shutdown",
    "signals_held",
]
