# SPDX-License-Identifier: Apache-2.0
"""Batches in memory that processes share, and on a GPU: NVDEC, uploads, YUV to RGB.

Workers import this folder without torch, and nothing of GPUs: only the names of shared_memory.py
are loaded before their first use.

shared_memory.py  memory that several processes map, and the slots for batches in it
gpu_memory.py     GPU memory that several processes map
nvdec.py          decoding on an NVIDIA GPU, and scaling and packing frames there
gpu.py            which GPU delivers and decodes: the user's choice, and what it can do
draw.py           from packed YUV 4:2:0 to RGB, on any device
upload.py         from the bytes of a slot to tensors, in RAM or on a GPU
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from robostream.device.shared_memory import (
    LESS_MEMORY,
    BatchFormat,
    BatchSlots,
    ByteArray,
    create_memory,
    format_batch,
    map_memory,
    pack,
    unpack,
)

if TYPE_CHECKING:
    from robostream.device.draw import Tensors
    from robostream.device.gpu import (
        check_decode_device,
        choose_device,
        choose_gpu,
        count_workers,
        free_gpu_memory,
        refuse_gpu,
        total_gpu_memory,
    )
    from robostream.device.gpu_memory import (
        DeviceBatches,
        DeviceConfig,
        device_memory,
        open_device_batches,
        open_shared,
    )
    from robostream.device.nvdec import DeviceRenderer, open_nvdec, open_on_gpu
    from robostream.device.upload import (
        COPIES_IN_FLIGHT,
        HostTransfer,
        UploadThread,
        choose_transfer,
    )

__all__ = [
    "COPIES_IN_FLIGHT",
    "LESS_MEMORY",
    "BatchFormat",
    "BatchSlots",
    "ByteArray",
    "DeviceBatches",
    "DeviceConfig",
    "DeviceRenderer",
    "HostTransfer",
    "Tensors",
    "UploadThread",
    "check_decode_device",
    "choose_device",
    "choose_gpu",
    "choose_transfer",
    "count_workers",
    "create_memory",
    "device_memory",
    "format_batch",
    "free_gpu_memory",
    "total_gpu_memory",
    "map_memory",
    "open_device_batches",
    "open_nvdec",
    "open_on_gpu",
    "open_shared",
    "pack",
    "refuse_gpu",
    "unpack",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        for home in ("gpu_memory", "nvdec", "gpu", "upload"):
            module = importlib.import_module(f"robostream.device.{home}")
            if hasattr(module, name):
                return getattr(module, name)
    raise AttributeError(f"module 'robostream.device' has no attribute {name!r}")
