# SPDX-License-Identifier: Apache-2.0
"""Whole jobs on datasets: estimate a run, judge a shuffle, synthesise, examine, repair, copy.

budget.py           estimates of a run: steps, mixing, reads, memory, disk; of a mixture too
shuffle_quality.py  how well an order is shuffled, beside other methods; as a table and a plot
recorded_stats.py   computed statistics beside those of stats.json, and written in their place
order_log.py        logs of an order, and where two of them differ
explain.py          which frames, files and bytes made a batch of a run
machine.py          versions, FFmpeg's decoders, the GPU, and where to decode
page.py             HTML pages that fetch nothing: the frame, sections, tables, charts
views.py            thumbnails and contact sheets; reads what is shown of an episode
inspect_page.py     the page of a dataset
child_processes.py  runs a function in child processes that end with their parent
synth/              synthetic episodes, recorded as a dataset
doctor/             whether a dataset is sound, what is wrong with it, and a repaired copy
staging.py          copies of a local dataset: folders, and staging that survives a kill
recode.py           a copy of a dataset with its videos re-encoded
recode_videos.py    one video re-encoded, and compared with its original
convert.py          a v3.0 copy of a v2.x dataset
convert_files.py    its files: what they hold, where they go, joined and compared
"""

from robostream.tools.budget import (
    DatasetSizes,
    RankNeeds,
    RunSteps,
    estimate_mixing,
    estimate_rank,
    estimate_steps,
    list_mixture_cameras,
    list_video_cameras,
    measure_dataset,
    measure_mixture,
    row_bytes,
    share_variation,
)
from robostream.tools.convert import ConvertReport, convert_dataset
from robostream.tools.doctor.close_look import CloseLook, look_closely, look_json, look_text
from robostream.tools.doctor.examine import (
    DoctorOptions,
    Examination,
    examination_json,
    examination_text,
    examine_dataset,
)
from robostream.tools.doctor.repair import (
    RepairReport,
    repair_dataset,
    repair_json,
    repair_text,
)
from robostream.tools.explain import (
    BatchExplanation,
    BatchSample,
    batch_sheet,
    explain_batch,
    load_state,
)
from robostream.tools.inspect_page import inspect_html, viewer_command
from robostream.tools.machine import check_gpu, describe_software
from robostream.tools.order_log import (
    Comparison,
    compare_order_logs,
    format_line,
    logged_digest,
    write_order_log,
)
from robostream.tools.page import page_html, read_style, section_html, table_html, tile_html
from robostream.tools.recode import RecodeReport, recode_dataset
from robostream.tools.recode_videos import RecodeSpec
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
from robostream.tools.staging import check_folders, save_result
from robostream.tools.synth.recording import SynthSpec, make_dataset
from robostream.tools.views import save_sheet, sheet_of, view_episode
