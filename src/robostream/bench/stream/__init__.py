# SPDX-License-Identifier: Apache-2.0
"""`bench stream`: dataloading alone, from a folder, the Hub or a bucket, at one setting.

command.py   configure and run, for the command line
flags.py     the command line: LeRobot's flags, and ours
settings.py  StreamSettings: what is measured, and the name of its result
pace.py      when batches came: rates, waits, the start-up curve
mixing.py    how many episodes batches mixed
floor.py     the floor of a local dataset: decoding its pictures alone
figures.py   everything that was seen as one JSON object, each figure defined
measure.py   run one setting and return its figures
text.py      the same in a few lines
__main__.py  the process `bench suite` starts for each measurement
"""
