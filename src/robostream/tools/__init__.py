# SPDX-License-Identifier: Apache-2.0
"""Whole jobs on datasets: estimate a run, judge a shuffle, synthesise, diagnose, re-encode.

budget.py           estimates of a run: steps, mixing, reads, memory, disk
shuffle_quality.py  how well an order is shuffled, beside other methods; as a table and a plot
order_log.py        logs of an order, and where two of them differ
child_processes.py  runs a function in child processes that end with their parent
synth/              synthetic episodes, recorded as a dataset
diagnose/           why an episode does not decode
recode/             a copy of a dataset with its videos re-encoded
"""

from robostream.tools.budget import (
    BatchMixing,
    DatasetSizes,
    RankNeeds,
    RunSteps,
    estimate_mixing,
    estimate_rank,
    estimate_steps,
    list_video_cameras,
    measure_dataset,
)
from robostream.tools.diagnose.episode import Diagnosis, diagnose_episode
from robostream.tools.diagnose.machine import check_gpu, check_software
from robostream.tools.diagnose.report import diagnosis_json, diagnosis_text
from robostream.tools.order_log import (
    Comparison,
    compare_order_logs,
    format_line,
    write_order_log,
)
from robostream.tools.recode.encoding import CODECS as RECODE_CODECS
from robostream.tools.recode.encoding import RecodeSpec
from robostream.tools.recode.recoding import RecodeReport, recode_dataset
from robostream.tools.shuffle_quality import (
    ShuffleQuality,
    made_up_lengths,
    measure_methods,
    plot_qualities,
    uniform_distinct,
)
from robostream.tools.synth.recording import SynthReport, make_dataset
from robostream.tools.synth.spec import SynthSpec

__all__ = [
    "RECODE_CODECS",
    "Comparison",
    "DatasetSizes",
    "Diagnosis",
    "BatchMixing",
    "RankNeeds",
    "RecodeReport",
    "RecodeSpec",
    "ShuffleQuality",
    "RunSteps",
    "SynthReport",
    "SynthSpec",
    "check_gpu",
    "check_software",
    "compare_order_logs",
    "diagnose_episode",
    "diagnosis_json",
    "diagnosis_text",
    "estimate_mixing",
    "estimate_rank",
    "estimate_steps",
    "format_line",
    "list_video_cameras",
    "made_up_lengths",
    "make_dataset",
    "measure_dataset",
    "measure_methods",
    "plot_qualities",
    "recode_dataset",
    "uniform_distinct",
    "write_order_log",
]
