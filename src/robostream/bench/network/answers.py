# SPDX-License-Identifier: Apache-2.0
"""What faults make of an answer, before it is sent. Pure but for the date."""

from __future__ import annotations

import re
import time
from email.utils import formatdate
from http import HTTPStatus

from robostream.bench.network.message import Message, make_answer
from robostream.bench.network.script import Fault

_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\S+)")
# How far an overlong body reaches beyond its end, and a wrong range from the right one.
_TOO_FAR_BYTES = 16
# Faults that happen while an answer is sent.
IN_TRANSIT = ("reset", "stall", "truncate")


def refusal(fault: Fault) -> Message:
    """Return the answer of a fault of the kind "status"."""
    answer = make_answer(fault.status, b"refused by the proxy\n")
    if fault.retry_after_s is None:
        return answer
    after = str(fault.retry_after_s)
    if fault.as_date:
        after = formatdate(time.time() + fault.retry_after_s, usegmt=True)
    return answer.with_field("Retry-After", after)


def place_in(body: bytes, fault: Fault, chance: float) -> int:
    """Return how many bytes of the body come before the fault."""
    place = int(chance * len(body)) if fault.at_bytes is None else fault.at_bytes
    return min(place, len(body))


def spoil(answer: Message, fault: Fault, chance: float) -> Message:
    """Return the answer with a fault; the same answer if it has nothing to spoil.

    Bodies become shorter or longer only where a Content-Range says how long they should be.
    """
    if fault.kind == "etag":
        return answer.with_field("ETag", '"replaced"') if answer.get("ETag") else answer
    body, is_range = answer.body, answer.status == HTTPStatus.PARTIAL_CONTENT
    place = min(place_in(body, fault, chance), len(body) - 1)
    if fault.kind == "corrupt" and body:
        return answer.with_body(body[:place] + bytes([body[place] ^ 0xFF]) + body[place + 1 :])
    if fault.kind == "short" and is_range:
        return answer.with_body(body[:place])
    if fault.kind == "overlong" and is_range:
        return answer.with_body(body + body[:1] * _TOO_FAR_BYTES)
    if fault.kind == "wrong_range" and is_range:
        return _elsewhere(answer)
    return answer


def _elsewhere(answer: Message) -> Message:
    match = _CONTENT_RANGE.fullmatch(answer.get("Content-Range"))
    if match is None:
        return answer
    start, stop = int(match[1]) + _TOO_FAR_BYTES, int(match[2]) + _TOO_FAR_BYTES
    return answer.with_field("Content-Range", f"bytes {start}-{stop}/{match[3]}")
