# SPDX-License-Identifier: Apache-2.0
"""Whole jobs on datasets: foretell a run, judge a shuffle, synthesise, diagnose, encode anew.

budget.py           what a run will need: memory, reads, steps, mixing
dataset_sizes.py    what a dataset weighs, without reading its data
diversity.py        how many episodes a batch mixes
shuffle_quality.py  how well an order is shuffled: ours, and what others do
shuffle_plot.py     the same as a picture
helpers.py          processes that help a command, and end with it
order_log.py        logs of an order, and where two of them fork
synth/              synthetic episodes, recorded as a dataset
diagnose/           why an episode does not decode
recode/             a copy of a dataset with its videos encoded anew
"""

from robostream.tools.budget import (
    Mixing,
    RankNeeds,
    Steps,
    estimate_mixing,
    estimate_rank,
    estimate_steps,
)
from robostream.tools.dataset_sizes import DatasetSizes, measure_dataset
from robostream.tools.diagnose.episode import Diagnosis, diagnose_episode
from robostream.tools.diagnose.report import diagnosis_json, diagnosis_text
from robostream.tools.diversity import uniform_distinct
from robostream.tools.order_log import (
    Comparison,
    compare_order_logs,
    format_line,
    write_order_log,
)
from robostream.tools.recode.recoding import RecodeReport, recode_dataset
from robostream.tools.recode.spec import CODECS as RECODE_CODECS
from robostream.tools.recode.spec import RecodeSpec
from robostream.tools.shuffle_plot import plot_qualities
from robostream.tools.shuffle_quality import ShuffleQuality, made_up_lengths, measure_methods
from robostream.tools.synth.recording import SynthReport, make_dataset
from robostream.tools.synth.spec import SynthSpec

__all__ = [
    "RECODE_CODECS",
    "Comparison",
    "DatasetSizes",
    "Diagnosis",
    "Mixing",
    "RankNeeds",
    "RecodeReport",
    "RecodeSpec",
    "ShuffleQuality",
    "Steps",
    "SynthReport",
    "SynthSpec",
    "compare_order_logs",
    "diagnose_episode",
    "diagnosis_json",
    "diagnosis_text",
    "estimate_mixing",
    "estimate_rank",
    "estimate_steps",
    "format_line",
    "made_up_lengths",
    "make_dataset",
    "measure_dataset",
    "measure_methods",
    "plot_qualities",
    "recode_dataset",
    "uniform_distinct",
    "write_order_log",
]
