# SPDX-License-Identifier: Apache-2.0
"""Worker processes, which build batches in memory they share with the consumer. No torch.

The consumer is the process that iterates over a loader.

channel.py        messages and file descriptors between two processes
shared_memory.py  memory several processes map, and objects whose arrays lie in it
batch_memory.py   how batches lie in shared memory
device_memory.py  memory of a GPU that several processes map
messages.py       what the consumer and its workers say to each other
worker_loop.py        one worker's work for all live iterators
worker_main.py        the program of a worker process
start.py          starting and ending worker processes, undisturbed by signals
turns.py          one thread at a time, where several iterators use one crew
pool.py               the worker processes of one loader, as the consumer uses them
in_process.py         the same work done in the consumer's own process
"""

from robostream.workers.batch_memory import BatchFormat, ByteArray, format_batch
from robostream.workers.device_memory import DeviceBatches, open_device_batches
from robostream.workers.in_process import InProcessPool
from robostream.workers.messages import Failed, WorkerConfig, WorkerIdentity
from robostream.workers.pool import WorkerPool, park_at_shutdown
from robostream.workers.shared_memory import create_memory, map_memory, pack
from robostream.workers.start import signals_held
from robostream.workers.worker_loop import WorkerLoop

__all__ = [
    "BatchFormat",
    "ByteArray",
    "WorkerPool",
    "DeviceBatches",
    "Failed",
    "WorkerIdentity",
    "InProcessPool",
    "WorkerConfig",
    "WorkerLoop",
    "create_memory",
    "format_batch",
    "map_memory",
    "open_device_batches",
    "pack",
    "park_at_shutdown",
    "signals_held",
]
