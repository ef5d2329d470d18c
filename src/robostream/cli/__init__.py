# SPDX-License-Identifier: Apache-2.0
"""The robostream command: one file per subcommand.

main.py            argument parsing and exit codes
arguments.py       arguments that several commands share
info.py            `robostream info`: what a dataset holds
order.py           `robostream order`: receipts, and where two orders fork
plan.py            `robostream plan`: what a run will need
shuffle.py         `robostream shuffle`: how well an order is shuffled
diagnose.py        `robostream diagnose`: whether an episode decodes, and if not, why
synth.py           `robostream synth`: make a dataset
recode.py          `robostream recode`: a copy of a dataset with its videos encoded anew
demo.py            `robostream demo`: make one, stream it, show that the promises hold
cache.py           `robostream cache`: what the cache of remote bytes has, clearing it
bench.py           `robostream bench`: measure
"""
