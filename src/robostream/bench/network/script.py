# SPDX-License-Identifier: Apache-2.0
"""What the proxy does to which answers.

Chance is arithmetic: whether a request suffers a fault, and where in the body, follows from the
seed, what is asked for, and how often that was asked before. So two runs that ask for the same
suffer the same, in whatever order their connections happen to be served.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

KINDS: Mapping[str, str] = {
    "status": "an answer with `status` and Retry-After, without asking the server",
    "reset": "the connection is reset (RST) in the body",
    "stall": "silence in the body, for `seconds` or until the client hangs up; then the end",
    "truncate": "the connection closes in the body, short of the announced length",
    "short": "fewer bytes than Content-Range says, and a length that belongs to them",
    "overlong": "more bytes than Content-Range says, and a length that belongs to them",
    "ignore_range": "the whole file with 200 where a range was asked for",
    "wrong_range": "a Content-Range that begins elsewhere",
    "corrupt": "one byte of the body is another one",
    "etag": "another ETag, as if the file had been replaced",
}

# The kinds that need a body, and those that need a range.
_OF_BODIES = frozenset(("stall", "truncate", "corrupt"))
_OF_RANGES = frozenset(("short", "overlong", "ignore_range", "wrong_range"))


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind of fault, and whom it meets.

    Attributes:
        kind: One of KINDS.
        share: The share of the requests in question that suffer it.
        path: A regular expression found in the path of the requests in question.
        skip: So many of them pass first, in the order of their arrival.
        times: At most so many suffer it; None for no end.
        at_bytes: Where in the body; None for a place by chance.
        seconds: How long a stall is.
        status: Which status.
        retry_after_s: What Retry-After says; None for no such header.
        as_date: Whether it says so as a date.
    """

    kind: str
    share: float = 1.0
    path: str = ""
    skip: int = 0
    times: int | None = None
    at_bytes: int | None = None
    seconds: float = 3600.0
    status: int = 503
    retry_after_s: int | None = None
    as_date: bool = False

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"want a kind of fault among {', '.join(KINDS)}, got {self.kind!r}")


@dataclass(frozen=True, slots=True)
class Script:
    """Everything the proxy does.

    Attributes:
        faults: Each request suffers one of them at most.
        seed: What chance follows from.
        latency_s: The round trip: one for each request, one for each new connection.
        bytes_per_s: What bodies of all connections together pass at; 0 for no limit.
        requests_per_s: Beyond so many, 429; 0 for no limit.
    """

    faults: tuple[Fault, ...] = ()
    seed: int = 0
    latency_s: float = 0.0
    bytes_per_s: float = 0.0
    requests_per_s: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return the script as plain values."""
        return dataclasses.asdict(self)

    @staticmethod
    def from_dict(values: dict[str, Any]) -> Script:
        """Return the script of `to_dict`."""
        faults = tuple(Fault(**fault) for fault in values["faults"])
        return Script(**{**values, "faults": faults})


def mixed_faults(share: float, *, path: str = "") -> tuple[Fault, ...]:
    """Return all transient faults a client can notice, equally often, `share` of reads in all.

    Requests without a range suffer only those that can happen to them. There are no stalls, each of
    which would cost as much time as the client has patience. There are no corrupted bytes, which no
    client can notice without a checksum.
    """
    mix: list[dict[str, Any]] = [
        {"kind": "status", "status": 429, "retry_after_s": 0},
        {"kind": "status", "status": 503},
        {"kind": "reset"},
        {"kind": "truncate"},
        {"kind": "short"},
        {"kind": "overlong"},
        {"kind": "wrong_range"},
    ]
    return tuple(Fault(share=share / len(mix), path=path, **fault) for fault in mix)


class Director:
    """Applies a script: counts the requests and chooses their faults."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self._asked: Counter[str] = Counter()
        self._met = Counter[int]()
        self._suffered = Counter[int]()

    def choose(self, method: str, path: str, byte_range: str) -> tuple[Fault | None, float]:
        """Return the fault of a request, if any, and a number in [0, 1) for its place.

        A fault that would change nothing, such as one in the body of a HEAD, is not chosen.
        """
        request = f"{method} {path} {byte_range}"
        self._asked[request] += 1
        name = f"{self.script.seed} {request} {self._asked[request]}"
        drawn, place = _chances(name)
        for number, fault in enumerate(self.script.faults):
            if not re.search(fault.path, path) or not _concerns(fault.kind, method, byte_range):
                continue
            self._met[number] += 1
            if self._is_over(number, fault):
                continue
            if drawn < fault.share:
                self._suffered[number] += 1
                return fault, place
            drawn -= fault.share
        return None, place

    def _is_over(self, number: int, fault: Fault) -> bool:
        is_spent = fault.times is not None and self._suffered[number] >= fault.times
        return is_spent or self._met[number] <= fault.skip


def _concerns(kind: str, method: str, byte_range: str) -> bool:
    if kind in _OF_RANGES:
        return method == "GET" and bool(byte_range)
    return kind not in _OF_BODIES or method != "HEAD"


def _chances(name: str) -> tuple[float, float]:
    drawn = hashlib.sha256(name.encode()).digest()
    return tuple(int.from_bytes(drawn[at : at + 7], "big") / 2**56 for at in (0, 8))  # type: ignore[return-value]
