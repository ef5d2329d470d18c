# SPDX-License-Identifier: Apache-2.0
"""Videos made once per test process, with what decoding them in order gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from robostream.config import quiet_encoders
from robostream.decode import Backend, FrameEngine
from robostream.storage import ByteSource, LocalSource
from tests.decode.videos import KINDS, reference


@dataclass(frozen=True)
class SampleVideo:
    """A video file and its frames as its container decodes them in order."""

    path: Path
    times_s: list[float]
    pictures: list[npt.NDArray[Any]]

    @property
    def file(self) -> str:
        """The path as the engine is asked for it."""
        return str(self.path)

    def __len__(self) -> int:
        return len(self.pictures)

    def slots(self, count: int, dtype: type | None = None) -> npt.NDArray[Any]:
        """Return slots for pictures, filled with what no picture holds throughout."""
        shape, own = self.pictures[0].shape, self.pictures[0].dtype
        return np.full((count, *shape), 77, dtype or own)


def local_engine(
    *,
    budget_bytes: int = 0,
    backend: Backend | None = None,
    index_folder: Path | None = None,
    open_source: Callable[[str], ByteSource] = LocalSource,
) -> FrameEngine:
    """Return an engine that reads local files."""
    return FrameEngine(
        open_source,
        budget_bytes=budget_bytes,
        max_files=8,
        backend=backend,
        index_folder=index_folder,
    )


@pytest.fixture(scope="session")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], SampleVideo]:
    """Make a video of a kind, or return the one made before."""
    quiet_encoders()
    made: dict[str, SampleVideo] = {}

    def make(kind: str) -> SampleVideo:
        if kind not in made:
            path = KINDS[kind](tmp_path_factory.mktemp(kind))
            made[kind] = SampleVideo(path, *reference(path))
        return made[kind]

    return make
