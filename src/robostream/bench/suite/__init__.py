# SPDX-License-Identifier: Apache-2.0
"""`bench suite`: everything small, in minutes, and the README's figures from it.

command.py  configure and run, for the command line
shapes.py   the datasets: codecs, sizes, row groups
cases.py    the rows of the table: a dataset, a mode, what is set
rounds.py   run all cases in turn, several times, each in processes of its own
readme.py   the README's tables, from the JSON
picture.py  the README's picture, from the same
"""
