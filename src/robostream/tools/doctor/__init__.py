# SPDX-License-Identifier: Apache-2.0
"""Whether a dataset is sound; if not, what is wrong, why it matters, and what to do.

Readers make items: tables, footers, sample tables, rows, clips. Checks are small functions that
look at one kind of item and yield remarks. To add one, write it beside its item.

findings.py    Check, Remark, Verdict and Finding; asks checks, collects and describes the answers
content.py     what a file contains, by its first bytes, and why it cannot be read
tables.py      checks of meta/
files.py       footers and sample tables, and their checks: no row, no frame
rows.py        all rows, and their checks
frames.py      decoded frames, and their checks
examine.py     examine_dataset: reads level by level, in parallel, and asks all checks
repair.py      repair_dataset: a copy with everything repaired that needs no invented data
close_look.py  look_closely: one episode with everything that was seen of it
"""
