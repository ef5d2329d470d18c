# SPDX-License-Identifier: Apache-2.0
"""The only home of default values and environment variables."""

from __future__ import annotations

import math
import os
from pathlib import Path

from robostream.byte_sizes import parse_bytes
from robostream.errors import SelectionError

CODEBASE_VERSION = "v3.0"

CHUNKS_SIZE = 1000
DATA_FILES_SIZE_IN_MB = 100
VIDEO_FILES_SIZE_IN_MB = 200
DATA_PATH = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
VIDEO_PATH = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
EPISODES_PATH = "meta/episodes/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
INFO_PATH = "meta/info.json"
STATS_PATH = "meta/stats.json"
TASKS_PATH = "meta/tasks.parquet"

# Episodes mixed at a time, over all ranks together; LeRobot's number.
EPISODE_POOL_SIZE = 64
# Seed of the order; LeRobot's number.
SEED = 42

# LeRobot's default: any frame further than this from the wanted time is an error.
TOLERANCE_S = 1e-4

# RAM for the rows of episodes in use: per process of a map-style dataset, per rank of a stream.
ROW_CACHE_BYTES = 512 * 1024**2
# RAM for decoded frames of a map-style dataset, per process. Nobody knows which frames such a
# dataset is asked for next, so it keeps those that were used last.
MAP_FRAME_CACHE_BYTES = 256 * 1024**2
# Video files kept open with their index, per process; fewer where the system allows fewer.
VIDEO_DECODER_CACHE_SIZE = 1024
# When frames are read in order, this many are decoded at a time, and then to the end of their GOP.
STRETCH_FRAMES = 32
# How far worker processes build ahead of the consumer: so many batches, and at least so many
# samples, and samples for each worker. Many workers have little to do for one batch, and each waits
# for the slowest.
PREFETCH_BATCHES = 4
PREFETCH_SAMPLES = 256
PREFETCH_SAMPLES_PER_WORKER = 64
# Processes that decode on one GPU: one for so much of its memory, of which it takes a tenth, but no
# more than keep its decoders as busy as Python can.
GPU_BYTES_PER_WORKER = 6 * 1024**3
WORKERS_PER_GPU = 8
# Batches a consumer may hold at a time; beyond that, it gets copies of batches.
HELD_BATCHES = 3
# Memory for batches that are built ahead: this much, or so much for each worker if that is more. Of
# large batches fewer are built ahead, but at least two.
BATCH_MEMORY_BYTES = 640 * 1024**2
BATCH_MEMORY_PER_WORKER_BYTES = 80 * 1024**2
# Samples of a batch: more are a mistake, and positions must fit into 64 bits.
MOST_BATCH_SIZE = 1 << 31
# Lanes of an order: each takes some tens of bytes in every process.
MOST_LANES = 1 << 20
# The longest wait for a batch: 24 days, as many milliseconds as poll() takes.
MOST_TIMEOUT_S = 2_147_483.0
# Iterators of one loader that may be alive at a time.
LIVE_ITERATORS = 4
# Memory per process for decoders that wait in the middle of a long GOP, and how many pictures each
# of them is taken to hold.
DECODER_BYTES = 1024**3
PICTURES_PER_DECODER = 6

# How often a request that failed is sent again, and how long a server may be silent.
REMOTE_RETRIES = 8
REMOTE_TIMEOUT_S = 30.0
# An answer that comes more slowly than this, for so long, is asked for again.
REMOTE_LEAST_BYTES_PER_S = 1024
REMOTE_SLOW_S = 60.0

# What a dataset from strangers may ask for before memory is taken: a JSON file of meta/, one value
# of a feature, the index of a video and its frames (4 days at 30 fps, 1 GB while they are indexed),
# the rows of one row group, a file on a server. JSON takes 25 times its size, the columns of a
# million episodes with 20 cameras take less than 1 GiB. What Parquet holds is counted as it is
# decoded: all files of the episode table together, the tasks, or the row groups of an episode,
# which may also take 4 times the size of their file.
JSON_LIMIT_BYTES = 16 * 1024**2
JSON_LIMIT_NAME = "ROBOSTREAM_JSON_LIMIT"
DECODE_LIMIT_BYTES = 2 * 1024**3
DECODE_LIMIT_NAME = "ROBOSTREAM_DECODE_LIMIT"
MOST_FEATURE_NUMBERS = 1 << 24
MOST_PIXEL_NUMBERS = 1 << 28
MOST_VIDEO_INDEX_BYTES = 1024**3
MOST_VIDEO_FRAMES = 10_000_000
MOST_ROW_GROUP_BYTES = 16 * 1024**3
MOST_REMOTE_FILE_BYTES = 1024**4

# Requests a worker process has under way at once to fetch ahead of decoding.
PREFETCH_REQUESTS = 4
# Memory per process for bytes that are fetched ahead and that the cache has no room for.
PREFETCH_MEMORY_BYTES = 32 * 1024**2
# Requests under way at once that `robostream cache warm` sends, or a look at all videos.
WARM_REQUESTS = 8

# The cache of remote bytes: its unit, and the share of a disk's free space it takes by default.
CACHE_BLOCK_BYTES = 64 * 1024
CACHE_SHARE_OF_DISK = 0.5
# Blocks of one remote file that may be kept: 256 GiB, of 64 KiB each. Nothing is kept of a file
# that is said to be larger. A block takes 24 bytes of memory and 32 on disk.
MOST_CACHED_BLOCKS = 1 << 22
# How long a process waits for another that fetches, or decodes, the same.
CACHE_PATIENCE_S = 30.0

# The most pixels a side of a resized image may have: more is a mistake.
MAX_IMAGE_PX = 8192

# LeRobot's encoders: a key frame every 2 frames makes random access cheap.
VIDEO_CODEC = "libsvtav1"
VIDEO_PIX_FMT = "yuv420p"
VIDEO_GOP = 2
VIDEO_CRF = 30
SVTAV1_PRESET = 12
# `robostream recode`: a codec that every NVIDIA GPU of the last ten years decodes, and a quality by
# codec at which a second encoding is hardly seen.
RECODE_CODEC = "h264"
RECODE_CRF = {"h264": 18.0, "hevc": 20.0, "libsvtav1": 22.0}
# Slower than a recorder has time for; at 12, some frames lose much more colour than others.
RECODE_SVTAV1_PRESET = 8
DEPTH_CODEC = "hevc"
DEPTH_PIX_FMT = "gray12le"
DEPTH_CODEC_OPTIONS = {"x265-params": "lossless=1"}
DEPTH_MIN_M = 0.01
DEPTH_MAX_M = 10.0
DEPTH_SHIFT_M = 3.5
# x265 4.2 writes beyond its memory for narrower images.
MIN_HEVC_WIDTH_PX = 64
# Images waiting for one camera's encoder; a full queue makes add_frame wait.
ENCODER_QUEUE_FRAMES = 30
# An encoder that takes longer than this for one image, or to finish a video, counts as stalled.
ENCODER_STALL_S = 60.0
# Where a recording keeps its episodes until finalize(), inside the dataset's folder.
STAGING_FOLDER = ".recording"

# `robostream synth`: about 9 minutes of a small three-camera robot.
SYNTH_EPISODES = 40
SYNTH_MIN_FRAMES = 200
SYNTH_MAX_FRAMES = 320
SYNTH_CAMERAS = 3
SYNTH_WIDTH = 256
SYNTH_HEIGHT = 256
SYNTH_FPS = 20
SYNTH_TASKS = 4


def hf_home() -> Path:
    """Return the Hugging Face home folder (`HF_HOME`, else under `XDG_CACHE_HOME`)."""
    return Path(os.environ.get("HF_HOME", f"{_cache_home()}/huggingface")).expanduser()


def lerobot_home() -> Path:
    """Return the folder of local LeRobot datasets (`HF_LEROBOT_HOME`)."""
    if "LEROBOT_HOME" in os.environ:
        raise SelectionError(
            "the environment variable LEROBOT_HOME is no longer read; rename it to HF_LEROBOT_HOME "
            f"(it is now {os.environ['LEROBOT_HOME']!r})"
        )
    default = hf_home() / "lerobot"
    return Path(os.environ.get("HF_LEROBOT_HOME", default)).expanduser()


def index_home() -> Path:
    """Return the folder of saved frame indices (`ROBOSTREAM_CACHE`, else in `XDG_CACHE_HOME`)."""
    return _robostream_home() / "indices"


def bench_home() -> Path:
    """Return the folder of datasets made for benchmarks; it lies beside that of the indices."""
    return _robostream_home() / "bench"


def cache_home() -> Path:
    """Return the folder of the cache of remote bytes, beside that of indices."""
    return _robostream_home() / "data"


def rate_limit_home() -> Path:
    """Return the folder in which the processes of this machine agree how fast they ask servers."""
    return _robostream_home() / "pace"


def remote_retries() -> int:
    """Return how often a request that failed is sent again (`ROBOSTREAM_REMOTE_IO_MAX_RETRIES`).

    LeRobot's variable is read too; 0 turns it off.
    """
    for name in ("ROBOSTREAM_REMOTE_IO_MAX_RETRIES", "LEROBOT_REMOTE_IO_MAX_RETRIES"):
        if name in os.environ:
            return _number_variable(name, REMOTE_RETRIES)
    return REMOTE_RETRIES


def _number_variable(name: str, default: int) -> int:
    value = os.environ.get(name)
    if value is None:
        return default
    if not value.strip().isdecimal():
        raise SelectionError(f"{name} must be a whole number of 0 or more, got {value!r}")
    return int(value)


def remote_slow_s() -> float:
    """Return how long an answer may come at less than 1 KiB/s (`ROBOSTREAM_REMOTE_IO_SLOW_S`).

    0 is for ever.
    """
    value = os.environ.get("ROBOSTREAM_REMOTE_IO_SLOW_S", REMOTE_SLOW_S)
    try:
        seconds = float(value)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < math.inf:
        raise SelectionError(
            f"ROBOSTREAM_REMOTE_IO_SLOW_S must be a number of seconds, 0 or more; got {value!r}"
        )
    return seconds


def hub_endpoint() -> str:
    """Return the address of the Hugging Face Hub (`HF_ENDPOINT`)."""
    return os.environ.get("HF_ENDPOINT", "https://huggingface.co").strip().rstrip("/")


def hub_token() -> str | None:
    """Return the Hub token of the environment (`HF_TOKEN`), or the one `hf auth login` stored."""
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        if os.environ.get(name, "").strip():
            return os.environ[name].strip()
    path = Path(os.environ.get("HF_TOKEN_PATH", hf_home() / "token")).expanduser()
    try:
        return path.read_text().strip() or None
    except OSError:
        return None


def s3_endpoint() -> str | None:
    """Return the address of another S3 server than Amazon's (`AWS_ENDPOINT_URL_S3`)."""
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")


def certificates() -> tuple[str, str | None]:
    """Return the variable that names the file of certificates to trust, and the file.

    Where none is set, it is `SSL_CERT_FILE` and None: Python reads that one itself.
    """
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        if os.environ.get(name):
            return name, os.environ[name]
    return "SSL_CERT_FILE", None


def most_video_frames() -> int:
    """Return how many frames one video file may have (`ROBOSTREAM_MOST_VIDEO_FRAMES`)."""
    return _number_variable("ROBOSTREAM_MOST_VIDEO_FRAMES", MOST_VIDEO_FRAMES)


def cache_limit_setting() -> str | None:
    """Return the limit of caches for which none is given (`ROBOSTREAM_CACHE_LIMIT`), if set."""
    return os.environ.get("ROBOSTREAM_CACHE_LIMIT") or None


def json_limit_bytes() -> int:
    """Return how large a JSON file of a dataset may be (`ROBOSTREAM_JSON_LIMIT`)."""
    return _size_setting(JSON_LIMIT_NAME, JSON_LIMIT_BYTES)


def decode_limit_bytes() -> int:
    """Return the memory that decoding Parquet may take at a time (`ROBOSTREAM_DECODE_LIMIT`)."""
    return _size_setting(DECODE_LIMIT_NAME, DECODE_LIMIT_BYTES)


def _size_setting(name: str, usual: int) -> int:
    value = os.environ.get(name)
    try:
        return parse_bytes(value) if value else usual
    except SelectionError as error:
        raise SelectionError(f"{name}: {error}") from None


def _robostream_home() -> Path:
    home = os.environ.get("ROBOSTREAM_CACHE", f"{_cache_home()}/robostream")
    return Path(home).expanduser()


def _cache_home() -> str:
    return os.environ.get("XDG_CACHE_HOME", "~/.cache")


def quiet_encoders() -> None:
    """Keep SVT-AV1 from printing a page per video, unless the user has set `SVT_LOG`."""
    os.environ.setdefault("SVT_LOG", "1")
