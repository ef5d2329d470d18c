# SPDX-License-Identifier: Apache-2.0
"""What lies in an AV1 packet: units ("OBUs"), each with a type and nearly always its size."""

from __future__ import annotations

_SEQUENCE_HEADER = 1
_TEMPORAL_DELIMITER = 2
_FRAMES = frozenset((3, 6))  # a frame's header alone, or with its content
_HAS_EXTENSION = 4
_HAS_SIZE = 2
# How a frame header begins: not an existing frame, of type key (two bits), shown.
_SHOWN_KEY = 0b0001


def begins_with_sequence_header(packet: memoryview) -> bool:
    """Return whether a packet starts as every key packet in an MP4 does. Pure."""
    at = 0
    # A temporal delimiter, which is empty, should have been left out but may come first.
    if len(packet) > 2 and _kind(packet[0]) == _TEMPORAL_DELIMITER:
        at = 2 if packet[0] & _HAS_SIZE else 1
    return len(packet) > at and _kind(packet[at]) == _SEQUENCE_HEADER


def can_be_joined(packets: list[memoryview]) -> bool:
    """Return whether a decoder can tell these packets apart when they come as one. Pure.

    So it is if all units state their size and end where their packet does. A unit without a size,
    which the last one of a packet may be, or one whose size is damaged, would take the packets
    behind it for its own.
    """
    return all(_units(packet) is not None for packet in packets)


def stands_alone(packets: list[memoryview]) -> bool:
    """Return whether packets give the same behind others as from a decoder's start. Pure.

    A decoder that is not emptied before would show a first frame that is no key from the frames
    that came before it.
    """
    first = packets[0]
    units = _units(first)
    if units is None or not begins_with_sequence_header(first) or not can_be_joined(packets[1:]):
        return False
    at = next((at for kind, at in units if kind in _FRAMES), len(first))
    return at < len(first) and first[at] >> 4 == _SHOWN_KEY


def _units(packet: memoryview) -> list[tuple[int, int]] | None:
    """Return the type and the place of each unit's content; None if they do not fill the packet."""
    units = []
    at, stop = 0, len(packet)
    try:
        while at < stop:
            head = packet[at]
            if not head & _HAS_SIZE:
                return None
            at += 2 if head & _HAS_EXTENSION else 1
            part = packet[at]
            size, bits = part & 127, 0
            while part > 127:
                at, bits = at + 1, bits + 7
                part = packet[at]
                size |= (part & 127) << bits
            at += 1
            units.append((_kind(head), at))
            at += size
    except IndexError:
        return None
    return units if at == stop else None


def _kind(head: int) -> int:
    return head >> 3 & 15
