# SPDX-License-Identifier: Apache-2.0
"""Measurements that print ratios against a reference."""

from robostream.bench.floor import decode_floor
from robostream.bench.table import format_table, machine

__all__ = ["decode_floor", "format_table", "machine"]
