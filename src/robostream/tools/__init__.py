# SPDX-License-Identifier: Apache-2.0
"""Whole jobs on datasets: estimate a run, judge a shuffle, synthesise, examine, repair, copy.

budget.py           estimates of a run: steps, mixing, reads, memory, disk
shuffle_quality.py  how well an order is shuffled, beside other methods; as a table and a plot
recorded_stats.py   computed statistics beside those of stats.json, and written in their place
order_log.py        logs of an order, and where two of them differ
machine.py          versions, FFmpeg's decoders, the GPU, and where to decode
mixture_plan.py     what a mixture needs, and how well it is mixed
mixture_import.py   lists of other projects, converted to a mixture
page.py             HTML pages that fetch nothing: the frame, sections, tables
child_processes.py  runs a function in child processes that end with their parent
inspection/         a page of a dataset, contact sheets, and what made a batch of a run
synth/              synthetic episodes, recorded as a dataset
doctor/             whether a dataset is sound, what is wrong with it, and a repaired copy
staging.py          copies of a local dataset: folders, and staging that survives a kill
recode/             a copy of a dataset with its videos re-encoded
convert/            a v3.0 copy of a v2.x dataset
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
    row_bytes,
)
from robostream.tools.convert.conversion import ConvertReport, convert_dataset
from robostream.tools.doctor.close_look import CloseLook, look_closely
from robostream.tools.doctor.examine import DoctorOptions, Examination, examine_dataset
from robostream.tools.doctor.repair import RepairReport, check_folders, repair_dataset
from robostream.tools.doctor.report import (
    examination_json,
    examination_text,
    look_json,
    look_text,
    repair_json,
    repair_text,
)
from robostream.tools.inspection.explain import (
    BatchExplanation,
    BatchSample,
    batch_sheet,
    explain_batch,
    load_state,
)
from robostream.tools.inspection.inspect_page import inspect_html, viewer_command
from robostream.tools.inspection.views import (
    save_result,
    save_sheet,
    sheet_of,
    view_dataset,
    view_episode,
)
from robostream.tools.machine import check_gpu, describe_software
from robostream.tools.mixture_import import (
    ListedDataset,
    convert_weights,
    format_mixture,
    read_list,
)
from robostream.tools.mixture_plan import (
    MixtureFigures,
    list_mixture_cameras,
    measure_mixture,
    share_variation,
)
from robostream.tools.order_log import (
    Comparison,
    compare_order_logs,
    format_line,
    logged_digest,
    write_order_log,
)
from robostream.tools.page import page_html, read_style, section_html, table_html, tile_html
from robostream.tools.recode.encoding import CODECS as RECODE_CODECS
from robostream.tools.recode.encoding import RecodeSpec
from robostream.tools.recode.recoding import RecodeReport, recode_dataset
from robostream.tools.recorded_stats import (
    StatsDifference,
    compare_stats,
    find_stats_file,
    write_stats,
)
from robostream.tools.shuffle_quality import (
    ShuffleQuality,
    made_up_lengths,
    measure_methods,
    plot_qualities,
    uniform_distinct,
)
from robostream.tools.synth.recording import SynthReport, SynthSpec, make_dataset
