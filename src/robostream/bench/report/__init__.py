# SPDX-License-Identifier: Apache-2.0
"""`bench report`: many runs of `bench stream` as a table, a CSV and one page to look at.

command.py  configure and run, for the command line
collect.py  the runs below a folder, and what failed
rows.py     runs of equal settings as one row, with medians
summary.py  the rows as a table and as summary.csv
bars.py     charts made of boxes: bars, stacks, ranges
curves.py   charts over time, as SVG
page.py     the page
"""
