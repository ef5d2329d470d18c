# SPDX-License-Identifier: Apache-2.0
"""The content of the loopback Hub: repos with commits, branches and tags, and buckets."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

_LFS_SUFFIXES = {".parquet", ".mp4", ".png", ".safetensors"}
_TIME = "2026-01-01T00:00:00.000Z"


@dataclass(frozen=True, slots=True)
class Blob:
    """The content of one file, with the digests the Hub gives it."""

    content: bytes
    lfs: bool

    @property
    def sha256(self) -> str:
        """The digest under which large files are stored."""
        return hashlib.sha256(self.content).hexdigest()

    @property
    def oid(self) -> str:
        """The digest git gives the content."""
        return hashlib.sha1(b"blob %d\0%b" % (len(self.content), self.content)).hexdigest()

    @property
    def etag(self) -> str:
        """The tag by which clients recognise the file."""
        return f'"{self.sha256 if self.lfs else self.oid}"'


Files = Mapping[str, Blob]


@dataclass(slots=True)
class Repo:
    """A dataset repo: commits by their 40 hexadecimal digits, and names for some of them."""

    token: str | None = None
    gated: bool = False
    is_private: bool = False
    commits: dict[str, Files] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)

    def commit(self, folder: Path, *, branch: str = "main", tags: Iterable[str] = ()) -> str:
        """Add a folder as it is now as the newest commit of a branch and return the commit."""
        sha = self.add_commit(read_files(folder), branch)
        self.tags |= dict.fromkeys(tags, sha)
        return sha

    def add_commit(self, files: Files, branch: str) -> str:
        """Add files as the newest commit of a branch and return the commit."""
        listing = "".join(f"{path} {blob.oid}\n" for path, blob in files.items())
        parent = self.branches.get(branch, "")
        sha = hashlib.sha1(f"{parent}\n{listing}".encode()).hexdigest()
        self.commits[sha] = files
        self.branches[branch] = sha
        return sha

    def resolve(self, revision: str) -> str | None:
        """Return the commit of a branch, tag or commit, or None if there is none."""
        if revision in self.commits:
            return revision
        return self.branches.get(revision) or self.tags.get(revision)

    def refs(self) -> dict[str, list[dict[str, str]]]:
        """Return the branches and tags as the Hub lists them."""
        return {
            "branches": _refs("heads", self.branches),
            "tags": _refs("tags", self.tags),
            "converts": [],
        }


def is_large(path: str) -> bool:
    """Return whether the Hub stores a file by its digest, apart from git."""
    return PurePosixPath(path).suffix in _LFS_SUFFIXES


def read_files(folder: Path) -> Files:
    """Return the files below a folder by their path in it, sorted."""
    return {
        path.relative_to(folder).as_posix(): Blob(path.read_bytes(), is_large(path.name))
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def repo_info(repo_id: str, sha: str, files: Files) -> dict[str, Any]:
    """Return the Hub's description of a repo at a commit."""
    return {
        "_id": "0" * 24,
        "id": repo_id,
        "sha": sha,
        "private": False,
        "gated": False,
        "disabled": False,
        "tags": [],
        "downloads": 0,
        "likes": 0,
        "siblings": [{"rfilename": path} for path in files],
        "lastModified": _TIME,
        "createdAt": _TIME,
    }


def bucket_info(bucket_id: str, files: Files) -> dict[str, Any]:
    """Return the Hub's description of a bucket."""
    return {
        "id": bucket_id,
        "private": False,
        "createdAt": _TIME,
        "size": sum(len(blob.content) for blob in files.values()),
        "totalFiles": len(files),
    }


def tree(files: Files, folder: str, *, recursive: bool) -> list[dict[str, Any]]:
    """Return the entries of a folder (or of all below it), sorted; empty if there is none."""
    prefix = f"{folder}/" if folder else ""
    found: dict[str, dict[str, Any]] = {}
    for path, blob in files.items():
        if not path.startswith(prefix):
            continue
        for parent in map(str, PurePosixPath(path).parents):
            if parent.startswith(prefix) and parent != ".":
                found[parent] = _folder_entry(parent)
        found[path] = file_entry(path, blob)
    inside = [path for path in sorted(found) if recursive or "/" not in path[len(prefix) :]]
    return [found[path] for path in inside]


def path_entries(files: Files, paths: Iterable[str]) -> list[dict[str, Any]]:
    """Return the entries of files and folders by name, leaving out those that do not exist."""
    found = []
    for path in paths:
        if path in files:
            found.append(file_entry(path, files[path]))
        elif any(other.startswith(f"{path}/") for other in files):
            found.append(_folder_entry(path))
    return found


def file_entry(path: str, blob: Blob) -> dict[str, Any]:
    """Return the Hub's description of one file."""
    entry = {
        "type": "file",
        "path": path,
        "size": len(blob.content),
        "oid": blob.oid,
        "xetHash": None,
        "mtime": _TIME,
    }
    if blob.lfs:
        entry["lfs"] = {"oid": blob.sha256, "size": len(blob.content), "pointerSize": 130}
    return entry


def _folder_entry(path: str) -> dict[str, Any]:
    oid = hashlib.sha1(path.encode()).hexdigest()
    return {"type": "directory", "path": path, "oid": oid, "size": 0}


def _refs(kind: str, names: Mapping[str, str]) -> list[dict[str, str]]:
    return [
        {"name": name, "ref": f"refs/{kind}/{name}", "targetCommit": sha}
        for name, sha in names.items()
    ]
