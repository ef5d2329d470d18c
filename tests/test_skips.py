# SPDX-License-Identifier: Apache-2.0
"""No test is left out in silence: what a machine lacks is said, and can be required."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.servers.required import lacking

TESTS = Path(__file__).parent
ONLY_WAY = TESTS / "servers" / "required.py"
OTHER_WAYS = re.compile(r"pytest\.skip\(|mark\.skip|mark\.xfail|importorskip|pytest\.xfail\(")


def test_tests_are_skipped_in_one_way_only() -> None:
    """Each names the thing it lacks, so that REQUIRE_<thing>=1 makes the skip a failure."""
    files = set(TESTS.rglob("*.py")) - {ONLY_WAY, Path(__file__)}
    found = [path.name for path in files if OTHER_WAYS.search(path.read_text())]

    assert OTHER_WAYS.search(ONLY_WAY.read_text())
    assert found == []


def test_every_requirement_is_documented() -> None:
    """docs/design.md names each, and where it comes from."""
    texts = [path.read_text() for path in TESTS.rglob("*.py") if path != Path(__file__)]
    named = {name for text in texts for name in re.findall(r'lacking\(\s*"(\w+)"', text)}
    design = (TESTS.parent / "docs" / "design.md").read_text()
    table = design.split("| name | requirement |")[1].split("\n\n")[0]

    assert set(re.findall(r"^\| `(\w+)`", table, re.MULTILINE)) == named


@pytest.mark.parametrize("value", [None, "", "0"])
def test_what_is_not_required_is_skipped(
    value: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the reason, and the variable that would make it a failure."""
    monkeypatch.delenv("REQUIRE_MOON", raising=False)
    if value is not None:
        monkeypatch.setenv("REQUIRE_MOON", value)
    with pytest.raises(pytest.skip.Exception, match="there is no moon; REQUIRE_MOON=1 makes"):
        lacking("MOON", "there is no moon")


def test_what_is_required_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the reason, and the variable that made it one."""
    monkeypatch.setenv("REQUIRE_MOON", "1")
    with pytest.raises(pytest.fail.Exception, match=r"there is no moon \(REQUIRE_MOON is set\)"):
        lacking("MOON", "there is no moon")
