# SPDX-License-Identifier: Apache-2.0
"""Batches in memory that processes share, and on a GPU: NVDEC, uploads, YUV to RGB.

Workers import this folder without torch, and nothing of GPUs: only the names of shared_memory.py
are loaded before their first use.

shared_memory.py  memory that several processes map, and the slots for batches in it
gpu_decoding.py   GPU memory that processes share, and decoding on an NVIDIA GPU
gpu.py            which GPU delivers and decodes: the user's choice, and what it can do
upload.py         from the bytes of a slot to tensors, in RAM or on a GPU, and from YUV to RGB
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from robostream.device.shared_memory import (
    LESS_MEMORY,
    BatchFormat,
    BatchSlots,
    ByteArray,
    create_and_map,
    create_memory,
    format_batch,
    map_memory,
    pack,
    unpack,
)
from robostream.lazy import load_on_first_use

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
    from robostream.device.upload import (
        COPIES_IN_FLIGHT,
        HostTransfer,
        Tensors,
        UploadThread,
        choose_transfer,
    )

__getattr__ = load_on_first_use(
    "robostream.device",
    {
        "gpu": "check_decode_device choose_device choose_gpu count_workers free_gpu_memory "
        "refuse_gpu total_gpu_memory",
        "gpu_decoding": "DeviceBatches DeviceConfig DeviceRenderer device_memory "
        "open_device_batches open_nvdec open_on_gpu open_shared",
        "upload": "COPIES_IN_FLIGHT HostTransfer Tensors UploadThread choose_transfer",
    },
)
