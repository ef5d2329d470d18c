# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from robostream.errors import StorageError
from robostream.storage import as_location, check_relative_path, redact
from robostream.storage.location import identify

PARTS = st.sampled_from(["a", "..", ".", "", "b c", "...", "~", "é", "\\", "C:", "x" * 300])


@given(name=st.one_of(st.lists(PARTS, max_size=6).map("/".join), st.text(max_size=20)))
def test_a_name_stays_below_its_root_or_is_refused(name: str) -> None:
    """Joined to any root, an accepted path stays below it."""
    try:
        taken = check_relative_path(name)
    except StorageError:
        return

    assert os.path.normpath(os.path.join("/srv/data", taken)).startswith("/srv/data/")
    assert "\0" not in taken


def test_usual_names_are_taken() -> None:
    """LeRobot's names and names with dots are accepted."""
    for name in ("data/chunk-000/file-000.parquet", "videos/observation.images.top/a..mp4"):
        assert check_relative_path(name) == name


def test_addresses_are_told_without_secrets() -> None:
    """Users, passwords and queries are removed; the rest stays readable."""
    text = "GET https://ann:pw@a.b/c/d.mp4?X-Amz-Signature=f00&e=1 failed (see http://x.y/z?k=s)"

    assert redact(text) == "GET https://a.b/c/d.mp4?... failed (see http://x.y/z?...)"


def test_a_location_prints_no_secrets() -> None:
    """The repr shows neither options nor secrets of the address."""
    place = as_location("https://ann:pw7@a.b/c/?sig=f00", {"headers": {"X-Key": "k9"}})

    assert place.url == "https://a.b/c"
    assert not [word for word in ("ann", "pw7", "f00", "k9") if word in repr(place)]
    assert place.options["query"] == "sig=f00"
    assert place.options["user"] == "ann:pw7"


def test_a_path_the_locale_cannot_name_is_refused_with_the_cure(tmp_path: Path) -> None:
    """In a C locale without UTF-8 mode, Python encodes ASCII names only."""
    (tmp_path / "caf\u00e9").mkdir()
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    code = (
        "from robostream.meta import LeRobotDatasetMetadata\n"
        f"LeRobotDatasetMetadata('some/name', root={str(tmp_path)!a} + '/caf\\u00e9')"
    )
    refused = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | plain,
        capture_output=True,
        text=True,
        check=False,
    )

    assert "StorageError" in refused.stderr
    assert "in ascii, which this Python takes from its locale" in refused.stderr
    assert "PYTHONUTF8=1" in refused.stderr


def test_a_file_is_the_same_however_its_address_is_signed() -> None:
    """Signatures, tokens and users grant access; any other parameter may select content."""
    plain = identify("https://a.b/c/d.mp4")
    signed = (
        "X-Amz-Date=1&X-Amz-Expires=60&X-Amz-Security-Token=t&X-Amz-Signature=f00",
        "GoogleAccessId=me&Expires=17&Signature=f00",
        "Policy=p&Signature=f00&Key-Pair-Id=k",
        "sv=2024&ss=b&srt=sco&sp=r&se=2026&st=2025&spr=https&skoid=o&sig=f00",
        "token=f00",
    )

    assert {identify(f"https://ann:pw@a.b/c/d.mp4?{query}") for query in signed} == {plain}


def test_server_path_and_query_tell_files_apart() -> None:
    """In an unsigned URL, short names select content too."""
    addresses = [
        *("https://a.b/c", "http://a.b/c", "https://a.b:9000/c", "https://b.b/c", "https://a.b/d"),
        *("https://a.b/c?v=1", "https://a.b/c?v=2", "https://a.b/c?versionId=1"),
        *("https://a.b/c?se=1", "https://a.b/c?sp=2", "https://a.b/c?v=2&sig=f00&set=1"),
    ]

    assert len({identify(address) for address in addresses}) == len(addresses)
