# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robostream.errors import (
    BackwardCompatibilityError,
    CompatibilityError,
    ForwardCompatibilityError,
)
from robostream.meta.locate import check_version, choose_revision, parse_version


@pytest.mark.parametrize("version", ["v3.0", "v2.1", "v2.0", "2.1"])
def test_three_versions_are_read(version: str) -> None:
    """v2.0, v2.1 and v3.0 pass."""
    major, minor = check_version(version, "here")

    assert version.endswith(f"{major}.{minor}")


@pytest.mark.parametrize("version", ["v1.6", "v2.2", "2.3"])
def test_other_old_versions_are_refused_in_words(version: str) -> None:
    """The message has the versions that can be read."""
    with pytest.raises(BackwardCompatibilityError, match=rf"{version}.* supports v2\.0, v2\.1, v3"):
        check_version(version, "here")


@pytest.mark.parametrize("version", ["v3.1", "v4.0", "v10.2"])
def test_newer_versions_are_refused(version: str) -> None:
    """A newer dataset may mean something else: it is never read silently."""
    with pytest.raises(ForwardCompatibilityError, match="Update robostream"):
        check_version(version, "here")


@pytest.mark.parametrize("version", ["", "three", "v3", "v3.0-beta"])
def test_a_version_that_is_none_is_refused(version: str) -> None:
    """Text that is no version is an error that shows it."""
    with pytest.raises(CompatibilityError, match="no version"):
        check_version(version, "here")


def test_a_branch_is_taken_as_it_is() -> None:
    """Names that are no versions skip the version rules."""
    assert choose_revision("main", [], "repo") == "main"


def test_the_exact_version_wins() -> None:
    """A repo with the wanted tag is read at that tag."""
    assert choose_revision("v3.0", ["main", "v2.1", "v3.0", "v3.1"], "repo") == "v3.0"


@given(minors=st.sets(st.integers(0, 30), min_size=1), wanted=st.integers(0, 30))
def test_the_greatest_usable_minor_is_taken(minors: set[int], wanted: int) -> None:
    """Without the exact tag, the greatest minor not above the wanted one is taken."""
    refs = [f"v3.{m}" for m in minors]
    usable = [m for m in minors if m <= wanted]
    if usable:
        assert parse_version(choose_revision(f"v3.{wanted}", refs, "r")) == (3, max(usable))
    else:
        with pytest.raises(ForwardCompatibilityError):
            choose_revision(f"v3.{wanted}", refs, "r")


def test_a_named_version_is_not_replaced_by_an_older_one() -> None:
    """Who asks for v3.0 gets it, or the name of the older version that is there."""
    with pytest.raises(BackwardCompatibilityError, match=r"older ones.*Pass revision='v2\.1'"):
        choose_revision("v3.0", ["main", "v2.0", "v2.1"], "repo")
    with pytest.raises(BackwardCompatibilityError, match=r"has version v1\.6"):
        choose_revision("v3.0", ["main", "v1.6"], "repo")


def test_a_repo_without_version_tags_is_refused_with_the_cure() -> None:
    """A repo with branches only says which revision to pass and how to tag."""
    with pytest.raises(CompatibilityError, match="revision='main'"):
        choose_revision("v3.0", ["main"], "repo")
