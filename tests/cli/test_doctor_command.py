# SPDX-License-Identifier: Apache-2.0
"""`robostream doctor`: its report, its exit codes, and remote datasets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from robostream import tools
from robostream.cli.main import main
from robostream.testing import serve_files
from robostream.tools.doctor import examine, files
from tests.fixture_datasets import FIXTURES, copy_of, edit_info
from tests.servers.hub import Hub

NAME = "av1_multifile"


def run(*arguments: object, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    code = main(["doctor", *map(str, arguments)])
    return code, capsys.readouterr().out


def no_statistics(tmp_path: Path) -> Path:
    root = copy_of(NAME, tmp_path)
    (root / "meta/stats.json").unlink()
    return root


def test_the_text_has_the_finding_why_and_the_cure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The worst finding comes first, the counts last."""
    code, printed = run(no_statistics(tmp_path), capsys=capsys)
    first = printed.split("\n\n")[1]

    assert code == 0  # a warning
    assert first.startswith("warning  stats-missing\n")
    assert "there are no statistics at all" in first
    assert "why:" in first
    assert "robostream stats DATASET --write DEST" in first
    assert "1 warning" in printed.splitlines()[-1]


@pytest.mark.parametrize(("fail_on", "code"), [("error", 0), ("warning", 1)])
def test_the_exit_code_depends_on_fail_on(
    fail_on: str, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A warning alone is a failure only if asked for."""
    root = no_statistics(tmp_path)

    assert run(root, "--fail-on", fail_on, capsys=capsys)[0] == code


def test_an_error_always_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With an error the exit code is 1, whatever --fail-on says; JSON has every check."""
    root = copy_of(NAME, tmp_path)
    edit_info(root, lambda info: info.update(total_frames=61))
    code, printed = run(root, "--json", "--rows", "--fail-on", "warning", capsys=capsys)
    found = json.loads(printed)
    by_id = {finding["id"]: finding for finding in found["findings"]}

    assert code == 1
    assert found["verdict"] == "error"
    assert by_id["counts"]["verdict"] == "error"
    assert {"level", "checks", "why", "remarks", "episodes"} <= set(by_id["counts"])
    assert by_id["rows"] | {"verdict": "ok"} == by_id["rows"]
    assert "decoding" not in by_id  # a check of another level


def test_markdown_has_a_heading_for_each_finding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """To paste into an issue."""
    _, printed = run(no_statistics(tmp_path), "--markdown", capsys=capsys)

    assert "\n### warning: stats-missing\n" in printed
    assert "\n- why: " in printed


@pytest.mark.parametrize(
    "options", [["--sample", "2"], ["--split", "train", "1-2"], ["--json", "--markdown"], ["--rws"]]
)
def test_wrong_options_exit_with_2(options: list[str]) -> None:
    """Wrong usage is not a finding."""
    try:
        code = main(["doctor", str(FIXTURES / NAME), *options])
    except SystemExit as stopped:
        code = stopped.code

    assert code == 2


def test_chunk_makes_short_episodes_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    """Without --chunk they are noted."""
    root = FIXTURES / NAME

    assert run(root, "--fail-on", "warning", capsys=capsys)[0] == 0
    code, printed = run(root, "--fail-on", "warning", "--chunk", "10", capsys=capsys)
    assert code == 1
    assert "fewer than 10 frames. Episodes 1-2" in printed


def test_a_recording_in_two_splits_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Splits that share an episode, or copies of one, leak; others do not. Rows are read."""
    root = FIXTURES / NAME
    apart = ["--rows", "--split", "train", "0:3", "--split", "test", "3:5"]
    shared = ["--split", "train", "0:4", "--split", "test", "3:5"]

    assert run(root, *apart, capsys=capsys)[0] == 0
    code, printed = run(root, *shared, capsys=capsys)
    assert code == 1
    assert "error    leakage" in printed
    assert "Episode 3." in printed


def test_fix_writes_a_copy_and_judges_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The exit code is that of the copy; the dataset itself stays as it is."""
    root, copy = no_statistics(tmp_path), tmp_path / "repaired"
    code, printed = run(root, "--fail-on", "warning", "--fix", copy, capsys=capsys)

    assert code == 0
    assert "computed the statistics again" in printed
    assert f"\n{copy}: v3.0" in printed
    assert (copy / "meta/stats.json").exists()
    assert not (root / "meta/stats.json").exists()
    assert main(["doctor", str(root), "--fix", str(copy)]) == 1  # it exists now
    assert "want a new folder" in capsys.readouterr().err


def test_fix_checks_its_folders_before_it_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Reading may take long: a remote dataset or an existing folder is an error at once."""
    monkeypatch.setattr(tools, "examine_dataset", None)

    assert main(["doctor", "lab/cups", "--fix", str(tmp_path / "copy")]) == 1
    assert "hf download lab/cups" in capsys.readouterr().err
    assert main(["doctor", str(FIXTURES / NAME), "--fix", str(tmp_path)]) == 1
    assert "want a new folder" in capsys.readouterr().err


def test_findings_are_printed_if_nothing_can_be_repaired(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They say why."""
    root = copy_of("h264_bframes", tmp_path)
    (root / "data/chunk-000/file-000.parquet").unlink()

    assert main(["doctor", str(root), "--fix", str(tmp_path / "copy")]) == 1
    printed = capsys.readouterr()
    assert "data/chunk-000/file-000.parquet: there is no such file" in printed.out
    assert "nothing to keep" in printed.err


@pytest.mark.parametrize("columns", [40, 70, 80])
def test_the_report_fits_the_terminal(
    columns: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Paragraphs are as wide as the terminal; only longer names of files stand out."""
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    _, printed = run(no_statistics(tmp_path), "--rows", capsys=capsys)
    wide = [line for line in printed.splitlines() if len(line) > columns]

    assert max(len(line) for line in printed.splitlines() if "/" not in line) > columns - 20
    assert all(len(line.split()) == 1 and "/" in line for line in wide)


def test_remote_datasets_are_sampled_unless_all_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of many files, some are read, evenly spread; the report says so."""
    monkeypatch.setattr(examine, "SAMPLED_FILES", 3)
    with serve_files(FIXTURES / NAME) as url:
        _, some = run(url, capsys=capsys)
        code, every = run(url, "--all", "--rows", "--frames", "--sample", "0.5", capsys=capsys)

    assert "3 of 9 files (--all reads them all)" in " ".join(some.split())
    assert "9 files, 3 files of rows" in " ".join(every.split())
    assert code == 0


@pytest.mark.long
def test_a_version_without_a_tag_is_a_warning(hub: Hub, tmp_path: Path) -> None:
    """LeRobot would not find it; huggingface_hub reads HF_ENDPOINT once in a process."""
    hub.add_repo("lab/cups").commit(FIXTURES / NAME)
    home = {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path), "HF_HUB_DISABLE_TELEMETRY": "1"}
    command = [sys.executable, "-m", "robostream", "doctor", "lab/cups"]
    command += ["--revision", "main", "--fail-on", "warning"]
    done = subprocess.run(
        command, env=os.environ | home, capture_output=True, text=True, check=False
    )

    assert done.returncode == 1, done.stderr
    assert "warning  version" in done.stdout
    assert "the repository has no such tag: main" in " ".join(done.stdout.split())


def test_torch_is_not_imported() -> None:
    """It would take longer than the default level."""
    code = (
        "import sys; from robostream.cli.main import main; "
        f"assert main(['doctor', {str(FIXTURES / NAME)!r}]) == 0; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


def test_ctrl_c_exits_with_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """While threads read, too."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(files, "read_file", interrupt)

    assert main(["doctor", str(FIXTURES / NAME)]) == 130
    assert "interrupted" in capsys.readouterr().err
