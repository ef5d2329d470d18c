# SPDX-License-Identifier: Apache-2.0
"""Worker processes, which build batches in memory they share with the consumer. No torch.

The consumer is the process that iterates over a loader.

protocol.py     the messages between the consumer and its workers, and their channel
processes.py    starting and ending worker processes, undisturbed by signals
pool.py         BatchPool: what pools share; WorkerPool: the worker processes of one loader
worker_main.py  a worker: its work for all live iterators, in the consumer or as a program
"""

from robostream.workers.pool import WorkerPool
from robostream.workers.processes import park_at_shutdown, signals_held
from robostream.workers.protocol import Failed, WorkerConfig
from robostream.workers.worker_main import InProcessPool, Worker
