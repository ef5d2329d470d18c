# SPDX-License-Identifier: Apache-2.0
"""Progress of long jobs, on a terminal and without one."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robostream import progress
from robostream.progress import Progress, format_bar, track
from tests.loader.programs import without_progress
from tests.terminal import shown_on_terminal

FACTS = ["12,345 samples/s", "1:02:12 left", "waited 100%"]
PROGRAM = """
from robostream.progress import track
for _ in track(range(40), "a job", 40, "steps"):
    pass
"""


@given(
    label=st.sampled_from(["synth", "cache warm", "epoch 123"]),
    share=st.floats(0, 1.5),
    facts=st.lists(st.sampled_from(FACTS), max_size=3),
    width=st.integers(1, 300),
)
def test_a_bar_never_exceeds_its_width(
    label: str, share: float, facts: Sequence[str], width: int
) -> None:
    """Whatever does not fit is left out."""
    assert len(format_bar(label, share, facts, width=width)) <= width


def test_seventy_columns_hold_a_label_a_bar_and_all_facts() -> None:
    """At 70 columns, the bar of a loader shows rate, time left and waiting."""
    drawn = format_bar("epoch 123", 0.5, FACTS, width=70)

    assert drawn.startswith("epoch 123  50% |███")
    assert drawn.count(" ") >= 5
    assert all(fact in drawn for fact in FACTS)


def test_facts_give_way_to_the_bar() -> None:
    """On a narrow terminal the last fact goes first."""
    drawn = format_bar("epoch 0", 1.0, FACTS, width=46)

    assert drawn == "epoch 0 100% |██████████████| 12,345 samples/s"


@pytest.mark.parametrize("columns", [40, 70, 100])
def test_a_bar_fits_the_terminal(columns: int) -> None:
    """A real terminal of that width gets one labelled bar that ends at 100 %."""
    shown = shown_on_terminal([sys.executable, "-c", PROGRAM], columns)
    drawn = [text for text in shown.replace("\n", "\r").split("\r") if text.strip()]

    assert drawn[-1].startswith("a job 100% |█")
    assert all(len(text) <= columns for text in drawn)


def test_without_a_terminal_a_long_job_prints_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each line has the label, the share, the rate and the time left."""
    monkeypatch.setattr(progress, "_LINE_EVERY_S", 0.0)
    with Progress("synth", 4, "frames", fact=lambda: "waited 0%") as shown:
        shown.update(2)
        shown.update(2)
    lines = capsys.readouterr().err.splitlines()

    assert [line.split(",")[0] for line in lines] == ["synth: 50%", "synth: 100%"]
    assert all("frames/s" in line and "left" in line and "waited 0%" in line for line in lines)


@pytest.mark.parametrize("label", ["synth", "cache warm", "doctor: files", "epoch 12"])
def test_lines_of_progress_are_told_from_messages(
    label: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests of messages leave them out, since a slow machine prints more of them."""
    monkeypatch.setattr(progress, "_LINE_EVERY_S", 0.0)
    for unit, total in (("B", 3 << 30), ("frames", 2), ("frames", 0)):
        with Progress(label, total, unit) as shown:
            shown.update()
    print("robostream: interrupted", file=sys.stderr)
    printed = capsys.readouterr().err

    assert printed.count(label) == 3
    assert without_progress(printed) == "robostream: interrupted\n"


def test_a_job_starts_no_thread() -> None:
    """Python 3.12 refuses to start threads while it ends, and loaders may be used then."""
    before = set(threading.enumerate())
    with Progress("a job", 1, "steps"):
        during = set(threading.enumerate())

    assert during <= before


def test_without_a_terminal_a_short_job_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """Output that is captured stays clean."""
    assert list(track([1, 2], "synth", 2, "frames")) == [1, 2]
    assert capsys.readouterr().err == ""
