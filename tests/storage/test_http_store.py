# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from email.utils import formatdate

import pytest

from robostream.errors import AccessDeniedError, MissingFileError, StorageError
from robostream.storage.connections import HttpResponse
from robostream.storage.http_store import read_chunk, retry_after_s
from robostream.storage.remote_source import FileChunk
from robostream.storage.retry import TransientError

LOGIN = "Log in."


def answer(
    status: int = 206,
    content: bytes = b"01234",
    found: str = "bytes 10-14/100",
    *,
    is_complete: bool = True,
    **headers: str,
) -> HttpResponse:
    known = {name.replace("_", "-"): value for name, value in headers.items()}
    return HttpResponse(status, {"content-range": found, **known}, content, is_complete)


def read(given: HttpResponse, start: int = 10, stop: int = 15) -> FileChunk:
    return read_chunk(given, start, stop, name="a file", login=LOGIN)


def test_a_range_comes_with_size_and_version() -> None:
    """The version is the ETag, weak or not, or else the time of last change."""
    assert read(answer(etag='"v1"')) == FileChunk(b"01234", 100, "v1")
    assert read(answer(etag='W/"v1"')).version == "v1"
    assert read(answer(last_modified="Monday")).version == "Monday"


def test_a_range_at_the_end_may_be_shorter() -> None:
    """The response to a range beyond the end gives the file's size."""
    assert read(answer(found="bytes 10-14/15"), stop=20) == FileChunk(b"01234", 15, "")
    assert read(answer(416, b"", "bytes */10")) == FileChunk(b"", 10, "")


@pytest.mark.parametrize(
    "given",
    [
        answer(found="bytes 0-4/100"),
        answer(found="bytes 10-15/100"),
        answer(found=""),
        answer(found="bytes */100"),
        answer(content=b"0123"),
        answer(content=b"012345"),
        answer(is_complete=False),
        answer(200, is_complete=False, accept_ranges="bytes"),
        *(answer(status) for status in (408, 425, 429, 500, 502, 503, 504)),
    ],
)
def test_invalid_responses_are_retried(given: HttpResponse) -> None:
    """Wrong, short and long responses are never accepted; they are retried."""
    with pytest.raises(TransientError):
        read(given)


@pytest.mark.parametrize(
    ("status", "kind", "words"),
    [
        (404, MissingFileError, "no such file"),
        (410, MissingFileError, "no such file"),
        (401, AccessDeniedError, LOGIN),
        (403, AccessDeniedError, LOGIN),
        (400, StorageError, "HTTP 400"),
    ],
)
def test_final_responses_are_errors(status: int, kind: type[Exception], words: str) -> None:
    """A retry would not help; the message names the file and the cure."""
    with pytest.raises(kind, match=rf"a file: .*{words}"):
        read(answer(status))


def test_a_server_without_ranges_gives_whole_small_files() -> None:
    """The range is taken from the complete file."""
    assert read(answer(200, bytes(range(20)))) == FileChunk(bytes(range(10, 15)), 20, "")


def test_a_server_without_ranges_gives_no_large_files() -> None:
    """A retry would not help."""
    with pytest.raises(StorageError, match=r"a file: the server gives whole files only.*nginx"):
        read(answer(200, is_complete=False))


def test_the_region_of_a_bucket_is_named() -> None:
    """The error names the bucket's region."""
    with pytest.raises(StorageError, match=r"pass .*region.*eu-west-1"):
        read(answer(301, x_amz_bucket_region="eu-west-1"))


def test_servers_say_how_long_to_wait() -> None:
    """The header holds seconds or a date."""
    now = 1_700_000_000.0

    assert retry_after_s("12", now) == 12
    assert retry_after_s("0.5", now) == 0.5
    assert retry_after_s(formatdate(now + 30, usegmt=True), now) == 30
    assert retry_after_s(formatdate(now - 30, usegmt=True), now) == 0
    assert retry_after_s("soon", now) is None
    assert retry_after_s(None, now) is None
