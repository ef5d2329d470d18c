# SPDX-License-Identifier: Apache-2.0
"""The robostream command: one file per subcommand.

main.py       argument parsing and exit codes
arguments.py  arguments that several commands share
info.py       `robostream info`: show the contents of a dataset
inspect.py    `robostream inspect`: a page of a dataset, or a contact sheet
stats.py      `robostream stats`: recompute statistics from rows
order.py      `robostream order`: print receipts, or find where two orders differ
explain.py    `robostream explain`: which frames, files and bytes made a batch
plan.py       `robostream plan`: estimate what a run needs
mix.py        `robostream mix`: plan a mixture of datasets, import another project's list
shuffle.py    `robostream shuffle`: measure how well an order is shuffled
doctor.py     `robostream doctor`: is a dataset sound
diagnose.py   `robostream diagnose`: find out why an episode does not decode
synth.py      `robostream synth`: make a synthetic dataset
convert.py    `robostream convert`: copy a v2.x dataset as v3.0
recode.py     `robostream recode`: copy a dataset with its videos re-encoded
demo.py       `robostream demo`: make a dataset, stream it, check the promises
cache.py      `robostream cache`: show, fill or clear the cache of remote bytes
env.py        `robostream env`: the machine, the software and the settings
bench.py      `robostream bench`: measure a part of robostream
"""
