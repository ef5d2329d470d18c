# SPDX-License-Identifier: Apache-2.0
"""The tables of docs/doctor.md say what the checks and the measured figures say."""

from __future__ import annotations

from pathlib import Path

from robostream.tools.doctor.examine import CHECKS
from scripts import compare_doctors
from tests.tools.doctor.broken import BROKEN

REPO = Path(__file__).parents[2]


def test_the_page_lists_the_checks_and_the_figures() -> None:
    """The tables equal those made from the checks and from the measured figures."""
    ((path, text),) = compare_doctors.PUBLICATION.refreshed(REPO).items()

    assert text == (REPO / path).read_text()


def test_every_check_that_alarms_has_a_broken_dataset() -> None:
    """A check that can warn is shown to do so; the others only note, or need another machine."""
    shown = {broken.check for broken in BROKEN}
    elsewhere = {"leakage", "decoders", "short-episodes"}  # tests of the command, of one episode
    only_notes = {"row-groups", "video-layout", "quantiles"}

    assert {one.id for one in CHECKS} - shown == elsewhere | only_notes
