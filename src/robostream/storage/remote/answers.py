# SPDX-License-Identifier: Apache-2.0
"""What an HTTP answer to a request for a range means. Pure."""

from __future__ import annotations

import math
import re
import time
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

from robostream.errors import AccessDeniedError, MissingFileError, StorageError
from robostream.storage.files.names import redact
from robostream.storage.remote.connections import MESSAGE_HEADER, Answer, parse_size
from robostream.storage.remote.retry import TransientError

_CONTENT_RANGE = re.compile(r"bytes (?:([0-9]{1,18})-([0-9]{1,18})|\*)/([0-9]{1,18}|\*)")
# The reason a server gives, in an error: its tags go, and what is beyond so many letters.
_TAG = re.compile(r"<(style|script|head)\b.*?</\1\s*>|<[^>]*>", re.DOTALL | re.IGNORECASE)
_XML_REASON = re.compile(r"<(Code|Message)>([^<]*)</\1>")
_LONGEST_REASON = 200
_PASSING = frozenset((408, 425, 429))


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes of a file as a server gave them.

    Attributes:
        content: The bytes; fewer than were asked for only at the end of the file.
        size: How large the file is; None if the server does not say.
        version: A text that changes when the file does; empty if the server has none.
        tag: What the server that gave the bytes calls this version, where another named it.
    """

    content: bytes
    size: int | None
    version: str
    tag: str = ""


def read_part(answer: Answer, start: int, stop: int, *, name: str, login: str) -> Part:
    """Return the bytes [start, stop) out of an answer, or raise what it means.

    Args:
        answer: What the server answered to a request for that range.
        start: The first byte that was asked for.
        stop: One past the last.
        name: The file, for messages.
        login: How to be let in, for messages.
    """
    if answer.status == 206:
        return _ranged(answer, start, stop, name)
    if answer.status == 416:
        match = _CONTENT_RANGE.fullmatch(answer.headers.get("content-range", ""))
        if match is not None and match[3] != "*":
            return Part(b"", int(match[3]), version_of(answer))
    if answer.status == 200:
        return _unranged(answer, start, stop, name)
    raise refusal(answer, name=name, login=login)


def refusal(answer: Answer, *, name: str, login: str) -> Exception:
    """Return the error that an answer without content stands for."""
    status = answer.status
    if is_transient(status):
        wait_s = retry_after_s(answer.headers.get("retry-after"), time.time())
        is_refusal = status == 429 or (status == 503 and wait_s is not None)
        return TransientError(f"HTTP {status}", is_refusal=is_refusal, wait_s=wait_s)
    if status in (404, 410):
        what = _bounded(answer.headers.get(MESSAGE_HEADER, "")) or "the server has no such file"
        return MissingFileError(f"{name}: {what} (HTTP {status}). Check the address and the root.")
    if status in (401, 403):
        reason = _reason(answer)
        said = f"HTTP {status}, {reason!r}" if reason else f"HTTP {status}"
        return AccessDeniedError(f"{name}: the server does not let us in ({said}). {login}")
    region = answer.headers.get("x-amz-bucket-region")
    if status in (301, 400) and region:
        cure = f"storage_options={{'region': {region!r}}}"
        return StorageError(f"{name}: the bucket lies in the region {region}: pass {cure}.")
    reason = _reason(answer)
    said = f"HTTP {status}: {reason}" if reason else f"HTTP {status}."
    return StorageError(f"{name}: the server answered {said}")


def _reason(answer: Answer) -> str:
    """Return why a server refuses, in its own words: short, and without secrets."""
    said = answer.headers.get(MESSAGE_HEADER)
    if not said:
        text = answer.content.decode("utf-8", "replace")
        said = ": ".join(m[2] for m in _XML_REASON.finditer(text)) or _TAG.sub(" ", text)
    return _bounded(said)


def _bounded(text: str) -> str:
    plain = " ".join("".join(c if c.isprintable() else " " for c in redact(text)).split())
    return plain if len(plain) <= _LONGEST_REASON else f"{plain[:_LONGEST_REASON]}..."


def is_transient(status: int) -> bool:
    """Return whether a status stands for a failure that passes."""
    return status in _PASSING or status >= 500


def retry_after_s(value: str | None, now: float) -> float | None:
    """Return the seconds a Retry-After header asks for, given as seconds or as a date."""
    if value is None:
        return None
    try:
        seconds = float(value)
        return max(seconds, 0.0) if math.isfinite(seconds) else None
    except ValueError:
        pass
    try:
        return max(parsedate_to_datetime(value).timestamp() - now, 0.0)
    except (ValueError, TypeError, OverflowError):
        return None


def version_of(answer: Answer) -> str:
    """Return what tells this version of a file from others."""
    tag = answer.headers.get("x-linked-etag") or answer.headers.get("etag")
    return tag.removeprefix("W/").strip('"') if tag else answer.headers.get("last-modified", "")


def _ranged(answer: Answer, start: int, stop: int, name: str) -> Part:
    found = answer.headers.get("content-range", "")
    match, found = _CONTENT_RANGE.fullmatch(found), found[:_LONGEST_REASON]
    if match is None or match[1] is None:
        raise TransientError(f"wanted bytes {start} to {stop}, the server says it gave {found!r}")
    first, last = int(match[1]), int(match[2])
    size = parse_size(match[3])
    end = stop if size is None else min(stop, size)
    if (first, last + 1) != (start, end):
        raise TransientError(f"wanted bytes {start} to {stop}, the server says it gave {found!r}")
    if len(answer.content) != end - start or not answer.is_whole:
        # The header is right and the body is not: cut off, or more than was announced.
        much = f"{len(answer.content)}" if answer.is_whole else f"more than {len(answer.content)}"
        raise TransientError(f"wanted {end - start} bytes, the server gave {much}")
    return Part(answer.content, size, version_of(answer))


def _unranged(answer: Answer, start: int, stop: int, name: str) -> Part:
    """Return a range out of a whole file, from a server that does not give ranges."""
    length = parse_size(answer.headers.get("content-length", ""))
    if "content-encoding" in answer.headers:
        raise StorageError(f"{name}: the server packs files, so they have no ranges. Turn it off.")
    size = len(answer.content) if length is None and answer.is_whole else length
    if not answer.is_whole and start > 0:
        if "bytes" not in answer.headers.get("accept-ranges", ""):
            raise StorageError(
                f"{name}: the server gives whole files only, and no ranges of their bytes. Serve "
                "the dataset with one that does, such as nginx, or copy it here."
            )
        # A server that has ranges and does not give one may do so when it is asked again.
        raise TransientError(f"wanted bytes {start} to {stop}, the server gave the whole file")
    return Part(answer.content[start:stop], size, version_of(answer))
