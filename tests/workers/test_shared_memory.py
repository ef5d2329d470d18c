# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os

import numpy as np
import pytest

from robostream.errors import WorkerError
from robostream.workers import create_memory, map_memory, pack
from robostream.workers.shared_memory import unpack
from tests.forked import in_child
from tests.loader.programs import open_files


def test_memory_is_shared_between_processes() -> None:
    """It begins as zeros; what one process writes, another reads; the descriptor may be closed."""
    fd = create_memory(8)
    memory = map_memory(fd)
    assert memory.tolist() == [0] * 8

    def write() -> None:
        map_memory(fd)[3] = 7

    assert os.waitpid(in_child(write), 0)[1] == 0
    os.close(fd)

    assert memory.tolist() == [0, 0, 0, 7, 0, 0, 0, 0]


def test_memory_of_nothing_can_be_mapped() -> None:
    """The system maps no empty file, so there is one byte."""
    fd = create_memory(0)
    memory = map_memory(fd)
    os.close(fd)

    assert len(memory) == 1


@pytest.mark.parametrize("nbytes", [1 << 62, 1 << 80])
def test_memory_that_cannot_be_had_names_the_cure(nbytes: int) -> None:
    """With the amount, and the settings to lower; no descriptor is left."""
    files = open_files()
    with pytest.raises(WorkerError, match=r"needs .* of memory in one piece: .*Lower frame_cache"):
        map_memory(create_memory(nbytes))

    assert open_files() - files in (0, 1)  # the system may refuse it only when it is mapped


def test_packed_objects_share_the_memory_of_their_arrays() -> None:
    """Two copies are equal, read the same bytes, and cannot be written to."""
    content = {
        "numbers": np.arange(100_000),
        "empty": np.zeros((0, 3), np.float32),
        "pictures": np.arange(300, dtype=np.uint16).reshape(10, 30),
        "transform": lambda value: value + 1,
        "text": "words",
    }
    fd = pack(content)
    copies = [unpack(fd), unpack(fd)]
    memory = map_memory(fd)
    os.close(fd)
    for copy in copies:
        assert all(np.array_equal(copy[key], content[key]) for key in ("numbers", "pictures"))
        assert copy["empty"].shape == (0, 3)
        assert copy["transform"](1) == 2
        assert copy["text"] == "words"
        assert not copy["numbers"].flags.writeable
    at = memory.tobytes().index(np.arange(100_000).tobytes())
    memory[at] = 255

    assert [copy["numbers"][0] for copy in copies] == [255, 255]
