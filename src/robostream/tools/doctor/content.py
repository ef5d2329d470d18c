# SPDX-License-Identifier: Apache-2.0
"""What a file contains, by its size and first bytes, and why it cannot be read."""

from __future__ import annotations

import re
from dataclasses import dataclass

from robostream.byte_sizes import format_bytes
from robostream.errors import DamagedFileError, MissingFileError, StorageError
from robostream.storage import ByteSource, FileOpener

# Enough for a whole Git LFS pointer, which says how large the real file is.
_HEAD_BYTES = 512
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
    ("other_format", "an archive", rb"\x1f\x8b|PK\x03\x04"),
    ("other_format", "an image", rb"\x89PNG|\xff\xd8\xff|GIF8"),
    ("unknown", "bytes of no known kind", rb""),
)
_AGAIN = "Copy or download the file again."
_CURES = {
    "lfs_pointer": "In the dataset's folder run: git lfs install && git lfs pull",
    "annex_pointer": "In the dataset's folder run: git annex get .",
    "web_page": "Read the message in the file, log in (hf auth login), download the file again.",
    "server_message": "Read the message in the file, then download the file again.",
    "other_format": "Put the right file in its place.",
    "unreadable": "Check the access rights, the keys or token, and the network.",
}
_HUB_CURE = "The file on the Hub is like this: read another revision, or tell the dataset's owner."
_WANTED = {"mp4": "an MP4 video", "parquet": "a Parquet file"}
_LFS_SIZE = re.compile(rb"^size (\d+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class FileProblem:
    """Why a file cannot be used: one word for scripts, what was found, and what to do."""

    kind: str
    what: str
    cure: str


def recognise(head: bytes, size_bytes: int) -> tuple[str, str]:
    """Return the kind of file that starts with `head`, as a word and in words. Pure."""
    if not size_bytes:
        return "empty", "an empty file"
    return next((kind, words) for kind, words, start in _CONTENTS if re.match(start, head))


def read_head(source: ByteSource) -> tuple[bytes, int]:
    """Return the first bytes of a file, and its size."""
    size = source.size()
    return source.read(0, min(size, _HEAD_BYTES)) if size else b"", size


def explain_file(opener: FileOpener, file: str, want: str, error: Exception) -> FileProblem:
    """Return why a file is not a readable "mp4" or "parquet": its contents, else the error."""
    cause = error if isinstance(error, StorageError) else error.__cause__
    if isinstance(cause, MissingFileError):
        what = f"{opener.location.describe(file)}: there is no such file."
        cure = "Download it (hf download OWNER/NAME --repo-type dataset --local-dir FOLDER)."
        return FileProblem("missing_file", what, f"{cure} Check the revision and the location.")
    if isinstance(cause, StorageError) and not isinstance(cause, DamagedFileError):
        return FileProblem("unreadable", str(error), _CURES["unreadable"])
    problem = explain_content(opener, file, want) or FileProblem("damaged", str(error), _AGAIN)
    if opener.location.url.startswith("hf://datasets/"):
        # The file was read from the Hub itself, so a fresh copy would not help.
        return FileProblem(problem.kind, problem.what, _HUB_CURE)
    return problem


def explain_content(opener: FileOpener, file: str, want: str) -> FileProblem | None:
    """Return what is in a file that should be an "mp4" or "parquet".

    None if it looks right, or cannot be read, such as a folder.
    """
    source = opener.open(file)
    try:
        head, size = read_head(source)
    except StorageError:
        return None
    kind, words = recognise(head, size)
    if kind == want:
        return None
    # For example, a complete Parquet file under a video's name.
    kind = "other_format" if kind in _WANTED else kind
    what = f"{source.name}: want {_WANTED[want]}, found {words} ({format_bytes(size)})."
    if real := _LFS_SIZE.search(head) if kind == "lfs_pointer" else None:
        what += f" The real file has {format_bytes(int(real[1]))}."
    return FileProblem(kind, what, _CURES.get(kind, _AGAIN))
