# SPDX-License-Identifier: Apache-2.0
"""What the proxy did, request by request, and how it adds up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request and what became of it.

    Attributes:
        at_s: When it came, in seconds since the proxy began.
        method: Its method.
        path: Its path, without the query, which may hold secrets.
        start: The first byte asked for; None if no range was.
        stop: One past the last; None for all that follow.
        status: What it was answered; 0 if nothing was.
        sent_bytes: How much of a body was sent.
        fault: The kind of the fault it suffered, "limit" if it came too soon, or "".
    """

    at_s: float
    method: str
    path: str
    start: int | None
    stop: int | None
    status: int
    sent_bytes: int
    fault: str


def counts(exchanges: Iterable[Exchange]) -> dict[str, Any]:
    """Return how many requests, bytes, answers of each status, and faults of each kind. Pure."""
    every = list(exchanges)
    return {
        "requests": len(every),
        "answered": sum(not exchange.fault and exchange.status < 400 for exchange in every),
        "sent_bytes": sum(exchange.sent_bytes for exchange in every),
        "statuses": dict(Counter(str(exchange.status) for exchange in every)),
        "faults": dict(Counter(exchange.fault for exchange in every if exchange.fault)),
    }
