# SPDX-License-Identifier: Apache-2.0
"""The faults of the proxy: which requests they hit, and what they do to a response.

Chance is arithmetic: whether a request fails, and where in the body, follows from the seed, the
request, and how often the same request came before. So two runs that make the same requests see the
same faults, in whatever order their connections are served.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from email.utils import formatdate
from http import HTTPStatus
from typing import Any

from robostream.testing.http_message import HttpMessage

KINDS: Mapping[str, str] = {
    "status": "respond with `status` and Retry-After without asking the server",
    "reset": "reset the connection (RST) within the body",
    "stall": "pause within the body for `seconds` or until the client hangs up, then close",
    "truncate": "close the connection within the body, short of Content-Length",
    "short": "send fewer bytes than Content-Range says, with a matching Content-Length",
    "overlong": "send more bytes than Content-Range says, with a matching Content-Length",
    "ignore_range": "send the whole file with status 200 for a range request",
    "wrong_range": "send a Content-Range with another start",
    "corrupt": "change one byte of the body",
    "etag": "send another ETag, as if the file had been replaced",
}

# Faults that happen while a response is sent.
IN_TRANSIT = ("reset", "stall", "truncate")
# The kinds that need a body, and those that need a range.
_OF_BODIES = frozenset(("stall", "truncate", "corrupt"))
_OF_RANGES = frozenset(("short", "overlong", "ignore_range", "wrong_range"))
_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\S+)")
# How far an overlong body extends past its end, and a wrong range lies from the right one.
_EXCESS_BYTES = 16


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind of fault and the requests it applies to."""

    kind: str  # one of KINDS
    share: float = 1.0  # of the matching requests
    path: str = ""  # a regular expression searched in the path of a request
    skip: int = 0  # how many matching requests pass first, in order of arrival
    times: int | None = None  # the most requests that fail; None for no limit
    at_bytes: int | None = None  # the position in the body; None for a random one
    seconds: float = 3600.0  # how long a stall lasts
    status: int = 503  # of kind "status"
    retry_after_s: int | None = None  # the value of Retry-After; None for no such header
    as_date: bool = False  # whether Retry-After is a date

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"want a kind of fault among {', '.join(KINDS)}, got {self.kind!r}")


@dataclass(frozen=True, slots=True)
class Script:
    """The behaviour of the proxy."""

    faults: tuple[Fault, ...] = ()  # at most one of them applies to a request
    seed: int = 0  # of all random decisions
    latency_s: float = 0.0  # a round trip: one for each request, one for each new connection
    bytes_per_s: float = 0.0  # the bandwidth that all connections share; 0 for no limit
    requests_per_s: float = 0.0  # above this rate, requests get status 429; 0 for no limit

    def to_dict(self) -> dict[str, Any]:
        """Return the script as JSON values."""
        return dataclasses.asdict(self)

    @staticmethod
    def from_dict(values: dict[str, Any]) -> Script:
        """Return the script that `to_dict` described."""
        faults = tuple(Fault(**fault) for fault in values["faults"])
        return Script(**{**values, "faults": faults})


def mixed_faults(share: float, *, path: str = "") -> tuple[Fault, ...]:
    """Return every transient fault that a client can detect, equally often; `share` of all reads.

    Requests without a range get only the faults that apply to them. Stalls are left out, because
    each lasts until the client's timeout, and so are corrupted bytes, which no client detects
    without a checksum.
    """
    cut = map(Fault, ("reset", "truncate", "short", "overlong", "wrong_range"))
    mix = [Fault("status", status=429, retry_after_s=0), Fault("status", status=503), *cut]
    return tuple(replace(fault, share=share / len(mix), path=path) for fault in mix)


class Director:
    """Applies a script: counts requests and selects their faults."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self._asked: Counter[str] = Counter()
        self._matched = Counter[int]()
        self._failed = Counter[int]()

    def select(self, method: str, path: str, byte_range: str) -> tuple[Fault | None, float]:
        """Return the fault of a request, if any, and a number in [0, 1) for its position.

        Skips faults that would change nothing, such as one in the body of a HEAD.
        """
        request = f"{method} {path} {byte_range}"
        self._asked[request] += 1
        key = f"{self.script.seed} {request} {self._asked[request]}"
        words = hashlib.sha256(key.encode()).digest()
        drawn, place = (int.from_bytes(words[at : at + 7], "big") / 2**56 for at in (0, 8))
        for number, fault in enumerate(self.script.faults):
            if not re.search(fault.path, path) or not _applies(fault.kind, method, byte_range):
                continue
            self._matched[number] += 1
            is_spent = fault.times is not None and self._failed[number] >= fault.times
            if is_spent or self._matched[number] <= fault.skip:
                continue
            if drawn < fault.share:
                self._failed[number] += 1
                return fault, place
            drawn -= fault.share
        return None, place


def _applies(kind: str, method: str, byte_range: str) -> bool:
    if kind in _OF_RANGES:
        return method == "GET" and bool(byte_range)
    return kind not in _OF_BODIES or method != "HEAD"


def refuse(fault: Fault) -> HttpMessage:
    """Return the response of a fault of kind "status"."""
    line = f"HTTP/1.1 {fault.status} {HTTPStatus(fault.status).phrase}"
    response = HttpMessage(line).with_body(b"refused by the proxy\n")
    if fault.retry_after_s is None:
        return response
    after = str(fault.retry_after_s)
    if fault.as_date:
        after = formatdate(time.time() + fault.retry_after_s, usegmt=True)
    return response.with_field("Retry-After", after)


def position_in(body: bytes, fault: Fault, chance: float) -> int:
    """Return how many bytes of the body precede the fault; a complete body would be no fault."""
    place = int(chance * len(body)) if fault.at_bytes is None else fault.at_bytes
    return min(place, max(len(body) - 1, 0))


def apply_fault(response: HttpMessage, fault: Fault, chance: float) -> HttpMessage:
    """Return the response with the fault applied, or unchanged where it does not apply.

    A body becomes shorter or longer only where a Content-Range gives its length.
    """
    if fault.kind == "etag":
        return response.with_field("ETag", '"replaced"') if response.get("ETag") else response
    body, is_range = response.body, response.status == HTTPStatus.PARTIAL_CONTENT
    place = position_in(body, fault, chance)
    if fault.kind == "corrupt" and body:
        return response.with_body(body[:place] + bytes([body[place] ^ 0xFF]) + body[place + 1 :])
    if fault.kind == "short" and is_range:
        return response.with_body(body[:place])
    if fault.kind == "overlong" and is_range:
        return response.with_body(body + body[:1] * _EXCESS_BYTES)
    match = _CONTENT_RANGE.fullmatch(response.get("Content-Range"))
    if fault.kind == "wrong_range" and is_range and match is not None:
        start, stop = int(match[1]) + _EXCESS_BYTES, int(match[2]) + _EXCESS_BYTES
        return response.with_field("Content-Range", f"bytes {start}-{stop}/{match[3]}")
    return response
