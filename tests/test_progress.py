# SPDX-License-Identifier: Apache-2.0
"""Progress of long jobs, on a terminal and without one."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robostream import progress
from robostream.progress import Progress, format_bar, track

FACTS = ["12,345 samples/s", "1:02:12 left", "waited 100%"]
PROGRAM = """
import fcntl, struct, sys, termios
fcntl.ioctl(2, termios.TIOCSWINSZ, struct.pack("HHHH", 24, int(sys.argv[1]), 0, 0))
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
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(columns)], stdin=theirs, stderr=theirs
    ) as child:
        os.close(theirs)
        written = b""
        while True:
            try:
                chunk = os.read(ours, 4096)
            except OSError:  # the terminal's other side is closed
                break
            written += chunk
    os.close(ours)
    drawn = [text for text in written.decode().replace("\n", "\r").split("\r") if text.strip()]

    assert child.returncode == 0
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

    assert lines[0].startswith("synth: 50%, ")
    assert lines[-1].startswith("synth: 100%, ")
    assert all("frames/s" in line and "left" in line and "waited 0%" in line for line in lines)


def test_without_a_terminal_a_short_job_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """Output that is captured stays clean."""
    assert list(track([1, 2], "synth", 2, "frames")) == [1, 2]
    assert capsys.readouterr().err == ""
