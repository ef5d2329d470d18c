# SPDX-License-Identifier: Apache-2.0
"""`bench gpu`: pictures into the memory of a GPU, by each of the ways there.

cases.py    datasets, samples and ways
one_run.py  the process that is started for each measurement
measure.py  runs them
tables.py   their tables, on a terminal and in docs/gpu.md
"""

from robostream.bench.gpu.measure import run
from robostream.bench.gpu.tables import publish

__all__ = ["publish", "run"]
