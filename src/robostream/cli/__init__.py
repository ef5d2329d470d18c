# SPDX-License-Identifier: Apache-2.0
"""The robostream command: its subcommands, by subject.

main.py       argument parsing and exit codes
arguments.py  arguments that several commands share, and the printing of results
contents.py   what is in a dataset: `robostream info`, `inspect`, `stats`
order.py      the order of an epoch: `robostream order`, `explain`, `shuffle`
plan.py       what a run needs before it starts: `robostream plan`
mix.py        mixtures of datasets, and lists of other projects: `robostream mix`
doctor.py     whether a dataset is sound: `robostream doctor`, `diagnose`
make.py       making datasets: `robostream synth`, `convert`, `recode`
demo.py       `robostream demo`: make a dataset, stream it, check the promises
machine.py    this machine: `robostream cache`, `env`
bench.py      `robostream bench`: measure a part of robostream
"""
