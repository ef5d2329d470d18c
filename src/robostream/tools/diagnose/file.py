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
# Kinds of files: a word for scripts, words for people, and a pattern of the first bytes.
_MESSAGE = "perhaps a server's error message"
_CONTENTS = (
    ("lfs_pointer", "a Git LFS pointer, not the file itself", rb"version https://git-lfs"),
    ("annex_pointer", "a git-annex pointer, not the file itself", rb"(?s:.*)/annex/objects/"),
    ("web_page", f"a web page (HTML), {_MESSAGE}", rb"(?i)\s*<(!doctype html|html)"),
    ("server_message", f"a text (XML or JSON), {_MESSAGE}", rb"(?i)\s*(<\?xml|<error|\{|\[)"),
    ("mp4", "an MP4", rb"(?s:.{4})ftyp"),
    ("mp4", "an MP4 without ftyp", rb"(?s:.{4})(moov|mdat|free|skip|wide|pnot|uuid)"),
    ("parquet", "a Parquet file", rb"PAR1"),
    ("zeros", "nothing but zero bytes, as an unfinished download leaves them", rb"\0*\Z"),
    ("other_format", "a Matroska or WebM video", rb"\x1aE\xdf\xa3"),
    ("other_format", "an AVI or another RIFF file", rb"RIFF"),
    ("other_format", "a gzip archive", rb"\x1f\x8b"),
    ("other_format", "a zip archive", rb"PK\x03\x04"),
    ("other_format", "a PNG image", rb"\x89PNG"),
    ("other_format", "a JPEG image", rb"\xff\xd8\xff"),
    ("other_format", "a GIF image", rb"GIF8"),
    ("unknown", "bytes of no known kind", rb""),
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


@dataclass(eq=False)
class Problem(Exception):
    """One reason why an episode cannot be decoded. Raised where checking cannot go on.

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
    if not size_bytes:
        return Content("empty", "an empty file")
    matching = ((kind, words) for kind, words, start in _CONTENTS if re.match(start, head))
    return Content(*next(matching))


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
    boxes = top_boxes(source) if want == content.kind == "mp4" else ()
    found = replace(
        found,
        size_bytes=size,
        first_bytes=head[:FIRST_BYTES].hex(),
        content=content,
        boxes=boxes,
        index_place=_index_place(boxes),
    )
    if content.kind != want:
        return replace(found, problem=_explain_content(found, head, want))
    return replace(found, problem=_explain_truncation(found) if boxes else None)


def _index_place(boxes: tuple[Box, ...]) -> str | None:
    kinds = [box.kind for box in boxes]
    if "moov" not in kinds:
        return "nowhere" if kinds else None
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
