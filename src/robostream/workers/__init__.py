# SPDX-License-Identifier: Apache-2.0
"""Worker processes, which build batches in memory they share with the consumer. No torch.

The consumer is the process that iterates over a loader. Workers load neither pools nor what starts
processes: these names load on first use.

protocol.py     the messages between the consumer and its workers, and their channel
processes.py    starting and ending worker processes, undisturbed by signals
pool.py         BatchPool: what pools share; InProcessPool, which builds in the consumer's process
worker_pool.py  WorkerPool: the worker processes of one loader
worker_main.py  a worker: its work for all live iterators, in the consumer or as a program
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from robostream.lazy import load_on_first_use
from robostream.workers.protocol import Failed, WorkerConfig

if TYPE_CHECKING:
    from robostream.workers.pool import InProcessPool
    from robostream.workers.processes import park_at_shutdown, signals_held
    from robostream.workers.worker_main import Worker
    from robostream.workers.worker_pool import WorkerPool

__getattr__ = load_on_first_use(
    "robostream.workers",
    {
        "pool": "InProcessPool",
        "processes": "park_at_shutdown signals_held",
        "worker_main": "Worker",
        "worker_pool": "WorkerPool",
    },
)
