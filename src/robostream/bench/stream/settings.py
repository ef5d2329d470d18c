# SPDX-License-Identifier: Apache-2.0
"""What `bench stream` measures, and the name its result is kept under."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robostream import config
from robostream.errors import SelectionError
from robostream.storage import redact

MODES = ("single", "sarm")
DECODE_DEVICES = ("cpu", "cuda")
# The defaults of LeRobot's benchmark_streaming.py.
BATCH_SIZE = 64
NUM_WORKERS = 8
PREFETCH_FACTOR = 2
NUM_BATCHES = 200
WARMUP_BATCHES = 5
TOLERANCE_S = 1e-3
OUT_DIR = Path("benchmarks/streaming/results")
FLOOR_S = 5.0
_SARM_STEPS = 8


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """One setting to measure.

    Attributes:
        repo_id: The dataset's name on the Hub; with `root`, only a name.
        root: Its folder or URL.
        data_files_root: Where data/ and videos/ lie, if elsewhere: a bucket, say.
        revision: Branch, tag or commit on the Hub.
        mode: "single" (one frame of all cameras) or "sarm" (8 steps 1 s apart, of every camera and
            the action).
        source: A label for where the data comes from: hub, bucket, warmed_bucket, local.
        batch_size: Samples per batch.
        num_workers: Worker processes; None for what the loader chooses.
        prefetch_factor: Batches built ahead; None for what the loader chooses.
        video_decoder_cache_size: Video files kept at hand; None for the default.
        episode_pool_size: Episodes mixed at a time.
        video_decode_device: Where pictures are decoded.
        frame_cache_bytes: Memory for decoded pictures, as the loader takes it.
        return_uint8: Pictures as uint8, as LeRobot's trainer asks for them, else float32.
        num_batches: Batches measured, after the warm-up.
        warmup_batches: Batches before.
        at_most_s: Seconds after which no more batches are taken; 0 for no limit.
        device: Where batches are moved to.
        floor_s: How long the decode floor is measured; 0 leaves it out.
    """

    repo_id: str
    root: str | None = None
    data_files_root: str | None = None
    revision: str | None = None
    mode: str = "single"
    source: str = "hub"
    batch_size: int = BATCH_SIZE
    num_workers: int | None = NUM_WORKERS
    prefetch_factor: int | None = PREFETCH_FACTOR
    video_decoder_cache_size: int | None = None
    episode_pool_size: int = config.EPISODE_POOL_SIZE
    video_decode_device: str = "cpu"
    frame_cache_bytes: int | str = "auto"
    return_uint8: bool = True
    num_batches: int = NUM_BATCHES
    warmup_batches: int = WARMUP_BATCHES
    at_most_s: float = 0.0
    device: str = "auto"
    floor_s: float = FLOOR_S

    def __post_init__(self) -> None:
        for name, value, known in (
            ("mode", self.mode, MODES),
            ("video_decode_device", self.video_decode_device, DECODE_DEVICES),
        ):
            if value not in known:
                raise SelectionError(f"want {name} to be one of {', '.join(known)}, got {value!r}")
        if not self.source or not set(self.source) <= _LABEL:
            raise SelectionError(
                "want a source label of letters, digits, '-' and '_', as it goes into file names, "
                f"got {self.source!r}"
            )

    def windows(self, camera_keys: Sequence[str]) -> dict[str, list[float]] | None:
        """Return the windows of a sample, as the stream takes them."""
        if self.mode == "single":
            return None
        steps = [float(step) for step in range(_SARM_STEPS)]
        return dict.fromkeys((*camera_keys, "action"), steps)

    def result_name(self, *, workers: int, prefetch: int) -> str:
        """Return the name that LeRobot's script gives a result, without its ending."""
        return (
            f"{self.source}_{self.mode}_bs{self.batch_size}_w{workers}_pf{prefetch}"
            f"_ep{self.episode_pool_size}_{self.video_decode_device}"
        )


_LABEL = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.")


def as_figures(settings: StreamSettings) -> dict[str, Any]:
    """Return the settings that are written beside the figures, without what addresses hide."""
    return {
        "repo_id": redact(settings.repo_id),
        "root": settings.root and redact(settings.root),
        "data_files_root": settings.data_files_root and redact(settings.data_files_root),
        "source": settings.source,
        "mode": settings.mode,
        "batch_size": settings.batch_size,
        "episode_pool_size": settings.episode_pool_size,
        "video_decode_device": settings.video_decode_device,
        "return_uint8": settings.return_uint8,
        "num_batches": settings.num_batches,
        "warmup_batches": settings.warmup_batches,
    }
