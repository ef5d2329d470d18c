# SPDX-License-Identifier: Apache-2.0
"""What a file of a dataset contains, by its size, first bytes and boxes, and what is wrong."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, replace

from robostream.byte_sizes import format_bytes
from robostream.errors import MissingFileError, StorageError, VideoFileError
from robostream.storage import ByteSource, FileOpener, Location

FIRST_BYTES = 32
# Enough for a whole Git LFS pointer, which says how large the real file is.
_HEAD_BYTES = 512
# Fragmented files have thousands of boxes; the first ones are enough for a diagnosis.
_MOST_BOXES = 64
_BOX_KINDS = (b"ftyp", b"moov", b"mdat", b"free", b"skip", b"wide", b"pnot", b"uuid")
_OTHER_FORMATS = (
    (b"\x1aE\xdf\xa3", "a Matroska or WebM video"),
    (b"RIFF", "an AVI or another RIFF file"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"PK\x03\x04", "a zip archive"),
    (b"\x89PNG", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF8", "a GIF image"),
)
_AGAIN = "Copy or download the file again."
_HUB_CURE = "The file on the Hub is like this: read another revision, or tell the dataset's owner."
_CURES = {
    "lfs_pointer": "In the dataset's folder run: git lfs install && git lfs pull",
    "annex_pointer": "In the dataset's folder run: git annex get .",
    "web_page": "Read the message in the file, log in (hf auth login), download the file again.",
    "server_message": "Read the message in the file, then download the file again.",
    "zeros": "Delete the file and download it again.",
    "other_format": "Put the right file in its place.",
}
_WANTED = {"mp4": "an MP4 video", "parquet": "a Parquet file"}
_LFS_SIZE = re.compile(rb"^size (\d+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Problem:
    """One reason why an episode cannot be decoded.

    Attributes:
        kind: One word for scripts, such as "lfs_pointer".
        what: What was wanted and what was found.
        cure: What to do.
    """

    kind: str
    what: str
    cure: str


@dataclass(frozen=True, slots=True)
class Content:
    """The kind of a file by its first bytes: one word for scripts, and words for people."""

    kind: str
    words: str


@dataclass(frozen=True, slots=True)
class Box:
    """A top-level box of an MP4, bytes [start, stop); if it is cut short, stop is past the file."""

    kind: str
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class FileCheck:
    """The findings about a file; `problem` is None if it looks as expected.

    Attributes:
        path: The full path or URL.
        size_bytes: None if the file cannot be reached.
        first_bytes: The first 32 bytes, as hexadecimal digits.
        content: The kind of file that starts with these bytes.
        boxes: The top-level boxes of an MP4.
        index_place: Where the index (moov box) of an MP4 is: "front", "back" or "nowhere".
    """

    path: str
    size_bytes: int | None = None
    first_bytes: str = ""
    content: Content = Content("nothing", "nothing")
    boxes: tuple[Box, ...] = ()
    index_place: str | None = None
    problem: Problem | None = None


def check_file(location: Location, file: str, *, want: str) -> FileCheck:
    """Return what a file contains, and what is wrong if it is not of the kind `want`.

    Args:
        location: The dataset's root.
        file: The path relative to it.
        want: "mp4" or "parquet".
    """
    found = FileCheck(location.describe(file))
    try:
        found = _inspect(found, FileOpener(location).open(file), want)
    except MissingFileError:
        return replace(found, problem=_explain_missing(location, file))
    except StorageError as error:
        return replace(found, problem=explain_unreadable(error))
    if found.problem is not None and location.url.startswith("hf://datasets/"):
        # The file was read from the Hub itself, so a fresh copy would not help.
        return replace(found, problem=replace(found.problem, cure=_HUB_CURE))
    return found


def explain_unreadable(error: StorageError | VideoFileError) -> Problem:
    """Return the problem of a file that exists but cannot be read. Pure."""
    cure = "Check the access rights, the keys or token, and the network."
    return Problem("unreadable", str(error), cure)


def recognise(head: bytes, size_bytes: int) -> Content:
    """Return the kind of file that starts with `head`. Pure."""
    text = head.lstrip().lower()
    if not size_bytes:
        return Content("empty", "an empty file")
    if head.startswith(b"version https://git-lfs"):
        return Content("lfs_pointer", "a Git LFS pointer, not the file itself")
    if b"/annex/objects/" in head:
        return Content("annex_pointer", "a git-annex pointer, not the file itself")
    if text.startswith((b"<!doctype html", b"<html")):
        return Content("web_page", "a web page (HTML), perhaps a server's error message")
    if text.startswith((b"<?xml", b"<error", b"{", b"[")):
        return Content("server_message", "a text (XML or JSON), perhaps a server's error message")
    if head[4:8] in _BOX_KINDS:
        return Content("mp4", "an MP4" if head[4:8] == b"ftyp" else "an MP4 without ftyp")
    if head.startswith(b"PAR1"):
        return Content("parquet", "a Parquet file")
    if not head.strip(b"\0"):
        return Content("zeros", "nothing but zero bytes, as an unfinished download leaves them")
    for magic, words in _OTHER_FORMATS:
        if head.startswith(magic):
            return Content("other_format", words)
    return Content("unknown", "bytes of no known kind")


def top_boxes(source: ByteSource) -> tuple[Box, ...]:
    """Return the top-level boxes of an MP4, the first 64 at most. Reads a few bytes of each."""
    size = source.size()
    boxes: list[Box] = []
    at = 0
    while at + 8 <= size and len(boxes) < _MOST_BOXES:
        header = source.read(at, min(size, at + 16))
        length, kind = struct.unpack_from(">I4s", header)
        if length == 1 and len(header) == 16:
            (length,) = struct.unpack_from(">Q", header, 8)
        elif length == 0:
            length = size - at
        # A size smaller than the header means damage: the loop ends there.
        stop = at + length if length >= 8 else size
        boxes.append(Box(kind.decode("ascii", "backslashreplace"), at, stop))
        at = stop
    return tuple(boxes)


def _inspect(found: FileCheck, source: ByteSource, want: str) -> FileCheck:
    size = source.size()
    head = source.read(0, min(size, _HEAD_BYTES)) if size else b""
    content = recognise(head, size)
    found = replace(found, size_bytes=size, first_bytes=head[:FIRST_BYTES].hex(), content=content)
    if content.kind != want:
        return replace(found, problem=_explain_content(found, head, want))
    if want != "mp4":
        return found
    boxes = top_boxes(source)
    found = replace(found, boxes=boxes, index_place=_index_place(boxes))
    return replace(found, problem=_explain_truncation(found))


def _index_place(boxes: tuple[Box, ...]) -> str:
    kinds = [box.kind for box in boxes]
    if "moov" not in kinds:
        return "nowhere"
    return "back" if "mdat" in kinds[: kinds.index("moov")] else "front"


def _explain_missing(location: Location, file: str) -> Problem:
    what = f"{location.describe(file)}: there is no such file."
    if location.local_root is None:
        cure = "Check the revision and the location; if both are right, the dataset is incomplete."
        return Problem("missing_file", what, cure)
    folder, suffix = file.split("/", 1)[0], file[file.rindex(".") :]
    others = FileOpener(location).list_files(folder, suffix)
    what += f" Other {suffix} files in {folder}/: {len(others) or 'none'}."
    cure = (
        "Download what is missing: hf download OWNER/NAME --repo-type dataset "
        f"--include '{folder}/**' --local-dir {location.url}"
    )
    return Problem("missing_file", what, cure)


def _explain_content(found: FileCheck, head: bytes, want: str) -> Problem:
    # For example, a complete Parquet file under a video's name.
    kind = "other_format" if found.content.kind in _WANTED else found.content.kind
    size = format_bytes(found.size_bytes or 0)
    what = f"{found.path}: want {_WANTED[want]}, found {found.content.words} ({size})."
    real = _LFS_SIZE.search(head) if kind == "lfs_pointer" else None
    if real is not None:
        what += f" The real file has {format_bytes(int(real[1]))}."
    return Problem(kind, what, _CURES.get(kind, _AGAIN))


def _explain_truncation(found: FileCheck) -> Problem | None:
    size = found.size_bytes or 0
    last = found.boxes[-1]
    if last.stop > size:
        what = (
            f"{found.path}: the file is truncated. Its {last.kind} box should end at byte "
            f"{last.stop:,}, the file ends at byte {size:,}."
        )
        return Problem("truncated", what, _AGAIN)
    if found.index_place == "nowhere" and len(found.boxes) < _MOST_BOXES:
        what = (
            f"{found.path}: the MP4 has no index (moov box), only "
            f"{', '.join(box.kind for box in found.boxes)}. The recording was cut off before the "
            "index was written, or the copy is incomplete."
        )
        return Problem("no_index", what, f"{_AGAIN} An unfinished recording must be repeated.")
    return None
