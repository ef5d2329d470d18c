# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robostream.decode.av1 import can_be_joined, stands_alone

SEQUENCE, DELIMITER, TILES, FRAME = 1, 2, 4, 6
SHOWN_KEY, HIDDEN_KEY, SHOWN_INTER, EXISTING = 0x10, 0x00, 0x30, 0x80


def unit(kind: int, content: bytes, *, extended: bool = False, sized: bool = True) -> bytes:
    """Return a unit as AV1 writes it."""
    head = bytes([kind << 3 | extended << 2 | sized << 1]) + b"\x00" * extended
    size = len(content)
    length = b""
    while sized:
        length += bytes([size & 127 | (128 if size > 127 else 0)])
        size >>= 7
        sized = size > 0
    return head + length + content


def views(*packets: bytes) -> list[memoryview]:
    """Return packets as the reader gives them."""
    return [memoryview(packet) for packet in packets]


units = st.builds(unit, st.integers(0, 15), st.binary(max_size=300), extended=st.booleans())
packets = st.lists(units, min_size=1, max_size=5).map(b"".join)


@given(st.lists(packets, max_size=5))
def test_packets_of_sized_units_can_be_joined(packets: list[bytes]) -> None:
    """Whatever the units are, they end where their packet ends."""
    assert can_be_joined(views(*packets))


@given(packets, st.binary(max_size=200))
def test_a_last_unit_without_a_size_cannot(packet: bytes, content: bytes) -> None:
    """It would go on into the next packet."""
    assert not can_be_joined(views(packet, packet + unit(FRAME, content, sized=False)))


@given(packets, st.binary(min_size=1, max_size=300), st.integers(1, 300))
def test_a_unit_that_ends_elsewhere_cannot(packet: bytes, content: bytes, more: int) -> None:
    """A size that is too large for the packet is found out, and so is a cut packet."""
    longer = unit(FRAME, content + bytes(more))

    assert not can_be_joined(views(packet + longer[:-more]))


@pytest.mark.parametrize(
    ("first", "expected"),
    [(SHOWN_KEY, True), (HIDDEN_KEY, False), (SHOWN_INTER, False), (EXISTING, False)],
)
def test_only_a_shown_key_stands_alone(first: int, expected: bool) -> None:
    """Anything else needs what was decoded before."""
    header, frame = unit(SEQUENCE, b"abc"), unit(FRAME, bytes([first, 7, 7]))
    second = unit(FRAME, bytes([SHOWN_INTER]))

    assert stands_alone(views(header + frame, second)) is expected
    assert stands_alone(views(unit(DELIMITER, b"") + header + frame, second)) is expected


def test_without_a_sequence_header_or_a_frame_nothing_stands_alone() -> None:
    """Nor with a second packet that cannot be told from the next, nor with an empty one."""
    header, frame = unit(SEQUENCE, b"abc"), unit(FRAME, bytes([SHOWN_KEY, 7]))
    for packets in (
        [frame],
        [header],
        [header + unit(FRAME, b"")],
        [header + unit(TILES, bytes([SHOWN_KEY]))],
        [header + frame, unit(FRAME, b"x", sized=False)],
        [b"", header + frame],
    ):
        assert not stands_alone(views(*packets))
