# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robostream.decode import CodecConfig, build_index, new_packet
from robostream.decode.backends import begins_afresh, read_packets
from robostream.decode.frame_index import Run
from robostream.storage import LocalSource
from tests.decode.conftest import SampleVideo

VideoMaker = Callable[[str], SampleVideo]


@given(
    st.lists(st.tuples(st.integers(0, 9), st.sampled_from([0, 3, 70_000])), min_size=1, max_size=9)
)
def test_each_packet_gets_its_own_bytes(
    clip: VideoMaker, tmp_path_factory: pytest.TempPathFactory, layout: list[tuple[int, int]]
) -> None:
    """Packets may be empty, and other tracks' bytes, few or many, may lie between them."""
    sizes, gaps = np.array(layout).T
    offsets = np.cumsum(sizes + gaps) - sizes
    content = np.random.default_rng(0).bytes(int(offsets[-1] + sizes[-1]))
    path = tmp_path_factory.mktemp("packets") / "file"
    path.write_bytes(content)
    index = replace(
        build_index(LocalSource(clip("h264_g2").path)), byte_offsets=offsets, sizes=sizes
    )
    packets = read_packets(LocalSource(path), index, Run(0, len(sizes), 0, index.configs[0]))

    assert packets == [content[p : p + n] for p, n in zip(offsets, sizes, strict=True)]


AV1 = CodecConfig("libdav1d", b"", 96, 64)


@pytest.mark.parametrize(
    ("packet", "expected"),
    [
        ("0a 01 00 32 01 10", True),
        ("12 00 0a 01 00 32 01 10", True),
        ("10 0a 01 00 32 01 10", True),
        ("32 01 10", False),
        ("12 00 32 01 10", False),
        ("12 00", False),
        ("", False),
    ],
    ids=["header", "delimiter", "delimiter without a size", "frame", "after one", "alone", "none"],
)
def test_a_key_packet_of_av1_begins_with_a_sequence_header(packet: str, expected: bool) -> None:
    """It may have a temporal delimiter before it; anything else is no start."""
    assert begins_afresh(memoryview(bytes.fromhex(packet)), AV1) is expected


@pytest.mark.parametrize("size", [1, 5_000])
def test_zeros_follow_a_packet(size: int) -> None:
    """Decoders look there; what they find must not depend on what happens to come next."""
    content = b"\xff" * (size + 100)
    packet = new_packet(memoryview(content)[:size])

    assert bytes(packet) == content[:size]
    assert ctypes.string_at(packet.buffer_ptr + size, 64) == bytes(64)
