# SPDX-License-Identifier: Apache-2.0
"""Which GPU delivers batches and decodes videos: the user's choice, and what it can do."""

from __future__ import annotations

import logging

import av
import torch

from robostream import config
from robostream.assemble import BatchLayout, find_first_frames
from robostream.decode import FileRun, plan_runs
from robostream.device.gpu_decoding import open_nvdec
from robostream.errors import SelectionError, VideoFileError

logger = logging.getLogger(__name__)

CPU, AUTO = "cpu", "auto"


def num_gpus() -> int:
    """Return how many GPUs torch can use."""
    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def too_few_gpus(otherwise: str) -> str:
    """Return why a GPU cannot be used, and the cure; `otherwise` is the way without a GPU."""
    return (
        f"torch {torch.__version__} sees {num_gpus()} CUDA devices. Install a torch built for "
        f"CUDA, check the driver with nvidia-smi, or {otherwise}."
    )


def choose_device(device: str | torch.device | None) -> torch.device | None:
    """Return the device for batches, or raise SelectionError; None to deliver them as built."""
    if device is None:
        return None
    try:
        chosen = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise SelectionError(f"device must be 'cuda', 'cuda:0' or 'cpu', got {device!r}") from error
    if chosen.type not in ("cuda", "cpu"):
        raise SelectionError(f"device must be 'cuda', 'cuda:0' or 'cpu', got {device!r}")
    if chosen.type == "cuda" and (chosen.index or 0) >= num_gpus():
        raise SelectionError(f"device={device!r}: " + too_few_gpus("leave `device` out"))
    return chosen


def check_decode_device(asked: str) -> None:
    """Raise SelectionError unless a text is "cpu", "auto", "cuda" or "cuda:0"."""
    is_gpu = isinstance(asked, str) and asked.partition(":")[0] == "cuda"
    try:
        if asked in (CPU, AUTO) or (is_gpu and torch.device(asked)):
            return
    except RuntimeError:
        pass
    raise SelectionError(
        f"video_decode_device must be 'cpu', 'cuda', 'cuda:0' or 'auto', got {asked!r}"
    )


def refuse_gpu(asked: str) -> None:
    """Raise SelectionError if a GPU is asked for where single samples are delivered."""
    if asked not in (CPU, AUTO):
        raise SelectionError(
            f"video_decode_device={asked!r}: only a StreamingDataLoader decodes on a GPU; a loop "
            "over the stream and torch's DataLoader decode on the CPU"
        )


def choose_gpu(asked: str, device: torch.device | None, layout: BatchLayout) -> str | None:
    """Return the GPU that decodes, such as "cuda:0"; None for the CPU.

    Args:
        asked: The user's choice: "cpu", "cuda", "cuda:0" or "auto".
        device: The device batches are delivered on.
        layout: How samples lie in a batch for a device, as packed YUV where possible.
    """
    if asked == CPU:
        return None
    gpu, reason = _find_gpu(asked, device)
    if gpu is not None:
        reason = _find_obstacle(layout) or _try_all(gpu, layout)
        if reason is None:
            return gpu
    if asked != AUTO:
        raise SelectionError(f"video_decode_device={asked!r}: {reason}")
    logger.info("videos are decoded on the CPU: %s", reason)
    return None


def count_workers(cores: int, gpu_bytes: int) -> int:
    """Return how many processes decode on a GPU with so much memory, at most one a core. Pure."""
    return max(1, min(cores, config.WORKERS_PER_GPU, gpu_bytes // config.GPU_BYTES_PER_WORKER))


def total_gpu_memory(gpu: str) -> int:
    """Return how many bytes a GPU has."""
    return int(torch.cuda.mem_get_info(gpu)[1])


def free_gpu_memory(gpu: str) -> int:
    """Return how many bytes of a GPU are free."""
    return int(torch.cuda.mem_get_info(gpu)[0])


def _find_gpu(asked: str, device: torch.device | None) -> tuple[str | None, str | None]:
    """Return the GPU of the user's choice, or None and the reason why there is none."""
    count = num_gpus()
    if asked == AUTO and (device is None or device.type != "cuda"):
        return None, "batches are delivered in RAM"
    meant = device if asked == AUTO else torch.device(asked)
    assert meant is not None
    index = meant.index if ":" in str(meant) else torch.cuda.current_device() if count else 0
    if index >= count:
        return None, too_few_gpus("decode on the CPU")
    if device is not None and device.type == "cuda" and device.index not in (None, index):
        return None, f"device={str(device)!r} is another one; choose one GPU for both"
    if device is not None and device.type != "cuda":
        return None, f"frames stay on the GPU, but device={str(device)!r}; leave `device` out"
    return f"cuda:{index}", None


def _find_obstacle(layout: BatchLayout) -> str | None:
    """Return why no GPU can decode for a layout; None if one may."""
    for camera in layout.cameras:
        if camera.key not in layout.videos or camera.coding is not None:
            continue
        if camera.is_transformed:
            return (
                f"image_transforms need the frames of {camera.key} on the CPU; apply them to the "
                "batch on the GPU instead"
            )
        if not camera.is_yuv:
            return f"the frames of {camera.key} are not 8-bit 4:2:0 of even height"
    return None


def _try_all(gpu: str, layout: BatchLayout) -> str | None:
    """Return why a GPU does not decode a camera's first video; None if it decodes them all."""
    for key, file, number in find_first_frames(layout):
        index = file.index
        reason = _try(gpu, (file, plan_runs(index, [number])[0]))
        if reason is not None:
            codec = av.Codec(index.config_of(number).decoder, "r").canonical_name
            return (
                f"{torch.cuda.get_device_name(gpu)} does not decode the {codec} videos of {key} "
                f"({reason}). Decode on the CPU, or make a copy of the dataset with `robostream "
                "recode ROOT COPY --codec h264`."
            )
    return None


def _try(gpu: str, run: FileRun) -> str | None:
    """Return why a GPU does not decode a run; None if it gives a frame."""
    try:
        if not any(frame is not None for _, _, frame in open_nvdec(gpu).decode([run])):
            return "no frame came"
    except TypeError:
        return f"PyAV {av.__version__} cannot leave frames on a GPU; PyAV 18 can"
    except (VideoFileError, NotImplementedError, av.FFmpegError) as error:
        return str(error)
    return None
