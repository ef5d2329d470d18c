# SPDX-License-Identifier: Apache-2.0
"""Default values, limits, and the environment variables that change them."""

from __future__ import annotations

import math
import os
from contextlib import suppress
from pathlib import Path

from robostream.byte_sizes import parse_bytes
from robostream.errors import SelectionError

CODEBASE_VERSION = "v3.0"
# The versions that can be read; without a revision, the first that a Hub repo has.
READABLE_VERSIONS = (CODEBASE_VERSION, "v2.1", "v2.0")

CHUNKS_SIZE = 1000
DATA_FILES_SIZE_IN_MB = 100
VIDEO_FILES_SIZE_IN_MB = 200
DATA_PATH = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
VIDEO_PATH = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
EPISODES_PATH = "meta/episodes/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
INFO_PATH = "meta/info.json"
STATS_PATH = "meta/stats.json"
TASKS_PATH = "meta/tasks.parquet"
# v2.0 and v2.1: one Parquet file and one MP4 per camera for each episode, tables as lines of JSON.
V2_DATA_PATH = "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet"
V2_VIDEO_PATH = "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4"
V2_EPISODES_PATH = "meta/episodes.jsonl"
V2_TASKS_PATH = "meta/tasks.jsonl"
V2_STATS_PATH = "meta/episodes_stats.jsonl"

# Episodes mixed at a time, over all ranks together; LeRobot's number.
EPISODE_POOL_SIZE = 64
# Seed of the order; LeRobot's number.
SEED = 42

# LeRobot's default: a frame further than this from its timestamp is an error.
TOLERANCE_S = 1e-4

# RAM for the rows of episodes in use: per process of a map-style dataset, per rank of a stream.
ROW_CACHE_BYTES = 512 * 1024**2
# RAM for decoded frames of a map-style dataset, per process. The most recently used frames stay.
MAP_FRAME_CACHE_BYTES = 256 * 1024**2
# RAM for whole columns while their statistics are computed; more take several passes over the rows.
STATS_MEMORY_BYTES = 2 * 1024**3
# Video files kept open with their index, per process; fewer where the system allows fewer.
VIDEO_DECODER_CACHE_SIZE = 1024
# Frames decoded at a time when a map-style dataset is read in order, plus the rest of their GOP.
STRETCH_FRAMES = 32
# How far worker processes build ahead of the consumer: this many batches, and at least this many
# samples in total and per worker. Each of many workers builds little of one batch, and a batch
# needs the slowest.
PREFETCH_BATCHES = 4
PREFETCH_SAMPLES = 256
PREFETCH_SAMPLES_PER_WORKER = 32
# Processes that decode on one GPU: one per this much of its memory, of which each takes about a
# tenth. More than the maximum does not make its decoders busier.
GPU_BYTES_PER_WORKER = 6 * 1024**3
WORKERS_PER_GPU = 8
# Batches that a consumer may hold at a time; beyond that, it gets copies.
HELD_BATCHES = 3
# Memory for batches built ahead: the larger of a total and an amount per worker. Of large batches
# fewer are built ahead, but at least two.
BATCH_MEMORY_BYTES = 640 * 1024**2
BATCH_MEMORY_PER_WORKER_BYTES = 48 * 1024**2
# Samples per batch: more are a mistake, and positions must fit into 64 bits.
MOST_BATCH_SIZE = 1 << 31
# Lanes of an order: each takes some tens of bytes in every process.
MOST_LANES = 1 << 20
# The longest wait for a batch: 24 days, the most milliseconds that poll() accepts.
MOST_TIMEOUT_S = 2_147_483.0
# Iterators of one loader that may be alive at a time.
LIVE_ITERATORS = 4
# Memory per process for decoders that wait in the middle of a long GOP, and the estimated number of
# frames that each holds.
DECODER_BYTES = 1024**3
FRAMES_PER_DECODER = 6

# How often a failed request is repeated, and how long a server may be silent.
REMOTE_RETRIES = 8
REMOTE_TIMEOUT_S = 30.0
# A response slower than this rate, for this long, is requested again.
REMOTE_LEAST_BYTES_PER_S = 1024
REMOTE_SLOW_S = 60.0

# Limits for untrusted datasets, checked before memory is allocated: a JSON file of meta/, one value
# of a feature, the index of a video, its frames (4 days at 30 fps; indexing them takes 1 GB), the
# rows of one row group, a file on a server. Python needs up to 25 times the size of a JSON file.
# The columns of a million episodes with 20 cameras take less than 1 GiB. The decode limit applies
# to decoded Parquet: the episode table (all files together), the tasks, or the row groups of one
# episode, which may also take 4 times the size of their file.
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

# Concurrent requests of a worker process that fetches ahead of decoding. With a file per episode
# there are more and smaller ones: they take a round trip each, and hardly any bandwidth.
PREFETCH_REQUESTS = 4
PREFETCH_FILE_REQUESTS = 8
# Memory per process for prefetched bytes that do not fit into the cache.
PREFETCH_MEMORY_BYTES = 32 * 1024**2
# Concurrent requests of `robostream cache warm`, and of checks that read all videos.
WARM_REQUESTS = 8

# An episode's own file of at most this size is fetched whole, with one request.
WHOLE_FILE_BYTES = 16 * 1024**2

# The cache of remote bytes: its block size, and its default share of the free disk space.
CACHE_BLOCK_BYTES = 64 * 1024
CACHE_SHARE_OF_DISK = 0.5
# Blocks per remote file: 256 GiB in blocks of 64 KiB. Larger files are not cached. Each block takes
# 24 bytes of memory and 32 on disk.
MOST_CACHED_BLOCKS = 1 << 22
# How long a process waits for another that fetches or decodes the same bytes.
CACHE_CLAIM_TIMEOUT_S = 30.0

# The longest side of a resized image: more is a mistake.
MAX_IMAGE_PX = 8192

# LeRobot's encoders: a key frame every 2 frames makes random access cheap.
VIDEO_CODEC = "libsvtav1"
VIDEO_PIX_FMT = "yuv420p"
VIDEO_GOP = 2
VIDEO_CRF = 30
SVTAV1_PRESET = 12
# `robostream recode`: a codec that every NVIDIA GPU of the last ten years decodes, and for each
# codec a quality at which the second encoding is hardly visible.
RECODE_CODEC = "h264"
RECODE_CRF = {"h264": 18.0, "hevc": 20.0, "libsvtav1": 22.0}
# Too slow for recording; at preset 12, some frames lose much more colour than others.
RECODE_SVTAV1_PRESET = 8
DEPTH_CODEC = "hevc"
DEPTH_PIX_FMT = "gray12le"
DEPTH_CODEC_OPTIONS = {"x265-params": "lossless=1"}
DEPTH_MIN_M = 0.01
DEPTH_MAX_M = 10.0
DEPTH_SHIFT_M = 3.5
# x265 4.2 writes beyond its memory for narrower images.
MIN_HEVC_WIDTH_PX = 64
# Images that wait for one camera's encoder; if the queue is full, add_frame blocks.
ENCODER_QUEUE_FRAMES = 30
# An encoder that needs longer than this for one image, or to finish a video, has stalled.
ENCODER_STALL_S = 60.0
# The folder in a dataset that holds recorded episodes until finalize().
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


def stats_home() -> Path:
    """Return the folder of saved statistics of mixtures."""
    return _robostream_home() / "stats"


def bench_home() -> Path:
    """Return the folder of datasets made for benchmarks."""
    return _robostream_home() / "bench"


def cache_home() -> Path:
    """Return the default folder of the cache of remote bytes."""
    return _robostream_home() / "data"


def rate_limit_home() -> Path:
    """Return the folder of rate limits that the processes of this machine share."""
    return _robostream_home() / "pace"


def remote_retries() -> int:
    """Return how often a failed request is repeated (`ROBOSTREAM_REMOTE_IO_MAX_RETRIES`).

    0 disables retries. LeRobot's variable is read too.
    """
    names = ("ROBOSTREAM_REMOTE_IO_MAX_RETRIES", "LEROBOT_REMOTE_IO_MAX_RETRIES")
    return _number_variable(REMOTE_RETRIES, *names)


def _number_variable(default: int, *names: str) -> int:
    for name in names:
        if (value := os.environ.get(name)) is not None:
            if not value.strip().isdecimal():
                raise SelectionError(f"{name} must be a whole number of 0 or more, got {value!r}")
            return int(value)
    return default


def remote_slow_s() -> float:
    """Return how long a response may be slower than 1 KiB/s (`ROBOSTREAM_REMOTE_IO_SLOW_S`).

    0 means without limit.
    """
    value = os.environ.get("ROBOSTREAM_REMOTE_IO_SLOW_S", REMOTE_SLOW_S)
    with suppress(ValueError):
        if 0 <= float(value) < math.inf:
            return float(value)
    raise SelectionError(
        f"ROBOSTREAM_REMOTE_IO_SLOW_S must be a number of seconds, 0 or more; got {value!r}"
    )


def hub_endpoint() -> str:
    """Return the address of the Hugging Face Hub (`HF_ENDPOINT`)."""
    return os.environ.get("HF_ENDPOINT", "https://huggingface.co").strip().rstrip("/")


def hub_token() -> str | None:
    """Return the Hub token from the environment (`HF_TOKEN`) or from `hf auth login`."""
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        if os.environ.get(name, "").strip():
            return os.environ[name].strip()
    path = Path(os.environ.get("HF_TOKEN_PATH", hf_home() / "token")).expanduser()
    try:
        return path.read_text().strip() or None
    except OSError:
        return None


def s3_endpoint() -> str | None:
    """Return the address of an S3 server that is not Amazon's (`AWS_ENDPOINT_URL_S3`)."""
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")


def certificates() -> tuple[str, str | None]:
    """Return the variable that names the file of trusted certificates, and the file.

    By default `SSL_CERT_FILE` and None, because Python reads that variable itself.
    """
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        if os.environ.get(name):
            return name, os.environ[name]
    return "SSL_CERT_FILE", None


def most_video_frames() -> int:
    """Return the largest number of frames of one video file (`ROBOSTREAM_MOST_VIDEO_FRAMES`)."""
    return _number_variable(MOST_VIDEO_FRAMES, "ROBOSTREAM_MOST_VIDEO_FRAMES")


def cache_limit_setting() -> str | None:
    """Return the default limit of caches (`ROBOSTREAM_CACHE_LIMIT`), if set."""
    return os.environ.get("ROBOSTREAM_CACHE_LIMIT") or None


def json_limit_bytes() -> int:
    """Return the largest size of a dataset's JSON file (`ROBOSTREAM_JSON_LIMIT`)."""
    return _size_setting(JSON_LIMIT_NAME, JSON_LIMIT_BYTES)


def decode_limit_bytes() -> int:
    """Return the most memory for decoded Parquet at a time (`ROBOSTREAM_DECODE_LIMIT`)."""
    return _size_setting(DECODE_LIMIT_NAME, DECODE_LIMIT_BYTES)


def _size_setting(name: str, default: int) -> int:
    value = os.environ.get(name)
    try:
        return parse_bytes(value) if value else default
    except SelectionError as error:
        raise SelectionError(f"{name}: {error}") from None


def _robostream_home() -> Path:
    home = os.environ.get("ROBOSTREAM_CACHE", f"{_cache_home()}/robostream")
    return Path(home).expanduser()


def _cache_home() -> str:
    return os.environ.get("XDG_CACHE_HOME", "~/.cache")


def quiet_encoders() -> None:
    """Stop SVT-AV1 from printing a page per video, unless the user has set `SVT_LOG`."""
    os.environ.setdefault("SVT_LOG", "1")
