# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest

from robostream.errors import ChangedFileError, DamagedFileError
from robostream.storage import LocalSource

CONTENT = bytes(range(256)) * 40
# Root may read everything, so it becomes somebody else, once all modules are there.
READ_AS_ANYBODY = """
import os, sys
from robostream.storage import LocalSource
if os.getuid() == 0:
    os.setuid(65534)
LocalSource(sys.argv[1]).size()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file of known content."""
    (tmp_path / "file.bin").write_bytes(CONTENT)
    return tmp_path / "file.bin"


def test_a_source_pickles_as_its_address(path: Path) -> None:
    """A copy in another process opens the file itself."""
    opened = LocalSource(path)
    opened.read(0, 10)
    copy = pickle.loads(pickle.dumps(opened))

    assert copy.name == str(path)
    assert copy.read(5, 15) == CONTENT[5:15]


def test_a_dropped_source_closes_its_file(path: Path) -> None:
    """No descriptor is left behind."""
    sources = [LocalSource(path) for _ in range(20)]
    for one in sources:
        one.read(0, 1)
    assert times_open(path) == 20
    del one, sources

    assert times_open(path) == 0


def times_open(path: Path) -> int:
    links = (f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd"))
    return sum(os.path.realpath(link) == str(path.resolve()) for link in links)


def test_a_version_changes_when_the_file_does(path: Path) -> None:
    """The version is the time of the last change."""
    before = LocalSource(path).version()
    os.utime(path, (1, 1))

    assert LocalSource(path).version() != before


def test_bytes_that_were_written_over_are_not_read(path: Path) -> None:
    """An open file and an expected version both notice the change."""
    os.utime(path, (1, 1))  # a file system's clock may be too coarse for two writes in a row
    opened = LocalSource(path)
    opened.read(0, 10)
    size, version = opened.size(), opened.version()
    path.write_bytes(CONTENT[::-1])

    with pytest.raises(ChangedFileError, match=f"{path}: the file was changed while"):
        opened.read(10, 20)
    with pytest.raises(ChangedFileError, match=f"{path}: the file was changed while"):
        LocalSource(path).expect(size, version)


def test_what_the_disk_does_not_give_is_an_error_with_the_file_s_name(tmp_path: Path) -> None:
    """Reading a folder fails like a file on a failing disk."""
    with pytest.raises(DamagedFileError, match=f"{tmp_path}: bytes 0 to 5 cannot be read: .*Errno"):
        LocalSource(tmp_path).read(0, 5)


def test_a_file_that_may_not_be_read_is_named(path: Path) -> None:
    """The error is AccessDeniedError."""
    path.chmod(0)
    path.parent.chmod(0o755)
    # The name is relative because the folders above may be closed to others.
    done = subprocess.run(
        [sys.executable, "-c", READ_AS_ANYBODY, path.name],
        cwd=path.parent,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )

    assert done.returncode == 1
    assert re.search(rf"AccessDeniedError: .*{path.name}", done.stderr)
