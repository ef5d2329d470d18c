# SPDX-License-Identifier: Apache-2.0
"""Batches in memory that processes share, and on a GPU: NVDEC, uploads, YUV to RGB.

Workers import this folder without torch: the names of gpu.py and upload.py are loaded on first use.

shared_memory.py  memory that several processes map, and the slots for batches in it
gpu_decoding.py   GPU memory that processes share, and decoding on an NVIDIA GPU
gpu.py            which GPU delivers and decodes: the user's choice, and what it can do
upload.py         from the bytes of a slot to tensors, in RAM or on a GPU, and from YUV to RGB
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from robostream.device.gpu_decoding import (
    DeviceBatches,
    DeviceConfig,
    DeviceRenderer,
    device_memory,
    open_device_batches,
    open_nvdec,
    open_on_gpu,
    open_shared,
)
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
    from robostream.device.gpu import (
        check_decode_device,
        choose_device,
        choose_gpu,
        count_workers,
        free_gpu_memory,
        refuse_gpu,
        total_gpu_memory,
    )
    from robostream.device.upload import (
        COPIES_IN_FLIGHT,
        HostTransfer,
        Tensors,
        UploadThread,
        choose_transfer,
    )

_LAZY = {
    "gpu": (
        "check_decode_device",
        "choose_device",
        "choose_gpu",
        "count_workers",
        "free_gpu_memory",
        "refuse_gpu",
        "total_gpu_memory",
    ),
    "upload": ("COPIES_IN_FLIGHT", "HostTransfer", "Tensors", "UploadThread", "choose_transfer"),
}


def __getattr__(name: str) -> Any:
    for home, names in _LAZY.items():
        if name in names:
            return getattr(importlib.import_module(f"robostream.device.{home}"), name)
    raise AttributeError(f"module 'robostream.device' has no attribute {name!r}")
