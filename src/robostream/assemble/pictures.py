# SPDX-License-Identifier: Apache-2.0
"""Pictures stored inside Parquet: PNG (colour) and TIFF or 16-bit PNG (depth)."""

from __future__ import annotations

from io import BytesIO

import numpy as np
import numpy.typing as npt
from PIL import Image, UnidentifiedImageError

from robostream.errors import DataFileError

_SIXTEEN_BIT = ("I;16", "I;16L", "I;16B", "I;16N")


def decode_picture(encoded: bytes | None, *, where: str) -> npt.NDArray[np.float32]:
    """Return (channels, height, width) float32: colour in [0, 1], depth in its recorded unit."""
    if not encoded:
        raise DataFileError(
            f"{where}: the picture is missing from the file (only a path was stored). Record it "
            "again with the picture's bytes embedded."
        )
    try:
        with Image.open(BytesIO(encoded)) as image:
            image.load()
            mode = image.mode
            values = np.asarray(image)
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError) as error:
        raise DataFileError(
            f"{where}: the picture cannot be decoded ({error}); its {len(encoded)} bytes start "
            f"with {encoded[:8]!r}. The file is damaged."
        ) from error
    if values.ndim == 2:
        values = values[:, :, None]
    chw = np.ascontiguousarray(values.transpose(2, 0, 1))
    if mode in _SIXTEEN_BIT or chw.dtype != np.uint8:
        return chw.astype(np.float32)
    # float32 division, as LeRobot's reader does it: multiplying by 1/255 differs in the last bit.
    return chw.astype(np.float32) / np.float32(255)
