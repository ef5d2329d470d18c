# SPDX-License-Identifier: Apache-2.0
"""The commands of the tutorials do what their pages say."""

from __future__ import annotations

import ast
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.examples.runs import environment
from tests.remote.stores import s3_environment
from tests.servers.hub import Hub
from tests.servers.ports import free_port
from tests.servers.s3 import S3Endpoint
from tests.slurm.cluster import Cluster

pytestmark = pytest.mark.long

REPO = Path(__file__).parents[2]
PAGES = REPO / "docs" / "tutorials"
RESUME = "examples/tutorials/resume.py"
TORCHRUN = ("-m", "torch.distributed.run")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a reader runs the commands: a folder with the examples."""
    (tmp_path / "examples").symlink_to(REPO / "examples")
    return tmp_path


def blocks(page: str, language: str) -> list[str]:
    text = (PAGES / f"{page}.md").read_text()
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def commands(page: str) -> list[list[str]]:
    """The commands of a page's first block."""
    return [shlex.split(line) for line in blocks(page, "sh")[0].splitlines()]


@pytest.mark.parametrize("page", sorted(path.stem for path in PAGES.glob("*.md")))
def test_a_page_shows_its_whole_program(page: str) -> None:
    """From the first import on: what a reader copies runs."""
    shown = re.findall(
        r'^--8<-- "(.*?)(?::(\d+))?"$', (PAGES / f"{page}.md").read_text(), re.MULTILINE
    )

    assert len(shown) == 1
    for path, first in shown:
        lines = (REPO / path).read_text().splitlines()
        if first:
            hidden = "\n".join(lines[: int(first) - 1])
            tree = ast.parse(hidden)
            names = [alias.name for node in tree.body[1:] for alias in getattr(node, "names", [])]
            assert (ast.get_docstring(tree) is not None, names) == (True, ["annotations"])


def variables(**more: str) -> dict[str, str]:
    path = os.pathsep.join([str(REPO / "src"), os.environ.get("PYTHONPATH", "")])
    return environment() | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", **more}


def runnable(words: list[str]) -> list[str]:
    """A command with this Python."""
    program, *arguments = words
    if program == "torchrun":
        return [sys.executable, *TORCHRUN, f"--master-port={free_port()}", *arguments]
    return [sys.executable, *(["-m", "robostream"] if program == "robostream" else []), *arguments]


def run(words: list[str], folder: Path, **more: str) -> str:
    done = subprocess.run(
        runnable(words), cwd=folder, env=variables(**more), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def expect(page: str, printed: str) -> None:
    """A page shows what was printed; `...` and losses may differ."""
    (text,) = blocks(page, "text")
    pattern = re.escape(text.strip()).replace(r"\.\.\.", ".+")
    pattern = re.sub(r"loss\\ [\d\\.]+", r"loss\\ [\\d.]+", pattern)

    assert re.fullmatch(pattern, printed.strip()), printed


@pytest.mark.parametrize("page", ["laptop", "one-node", "resume"])
def test_the_commands_of_a_page_print_what_it_shows(page: str, folder: Path) -> None:
    """From making the dataset to the last line; the page shows the last command's output."""
    *earlier, last = commands(page)
    for words in earlier:
        run(words, folder)

    expect(page, run(last, folder))


def test_datasets_stream_from_the_hub_and_from_s3(folder: Path, hub: Hub, s3: S3Endpoint) -> None:
    """Each is fetched in its first epoch, and not again in the second."""
    run(["robostream", "synth", "made", "--episodes=4", "--frames=20", "--size=64x64"], folder)
    hub.add_repo("lerobot/pusht").commit(folder / "made", tags=["v3.0"])
    address = s3.upload(folder / "made", "tutorial/cups")
    (words,) = commands("hub-and-s3")
    servers = s3_environment(s3) | {"HF_ENDPOINT": hub.url, "HF_HUB_DISABLE_TELEMETRY": "1"}
    places = {"ROBOSTREAM_CACHE": str(folder / "cache"), "HF_HOME": str(folder / "hf")}
    printed = run([*words, address], folder, **servers, **places).splitlines()
    found = [
        re.fullmatch(r"(\S+): epoch (\d), 80 samples, (\d+) bytes fetched", p) for p in printed
    ]
    shown = [(one[1], int(one[2]), int(one[3]) > 0) for one in found if one]

    assert shown == [
        (name, epoch, epoch == 0) for name in ("lerobot/pusht", address) for epoch in (0, 1)
    ]


@pytest.fixture
def dataset(folder: Path) -> str:
    run(["robostream", "synth", "d", "--episodes=6", "--frames=30", "--size=64x64"], folder)
    return "d"


def steps(printed: str) -> dict[int, str]:
    """By step: epoch, position, receipt and loss."""
    return {int(n): rest for n, rest in re.findall(r"^step (\d+) (.*)$", printed, re.MULTILINE)}


def test_a_killed_run_continues_as_if_nothing_had_happened(folder: Path, dataset: str) -> None:
    """A kill -9 in the middle: later steps have the frames and losses of a run without a stop."""
    command = runnable(["python", RESUME, dataset, "killed", "--steps", "100000"])
    with subprocess.Popen(
        command, cwd=folder, env=variables(), stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdout is not None
        for line in program.stdout:
            if line.startswith("step 12 "):
                program.send_signal(signal.SIGKILL)
                break
    last = re.compile(r"continuing after step (\d+)\n")
    peek = run(["python", RESUME, dataset, "killed", "--steps", "0"], folder)
    saved = int(last.findall(peek)[0])
    goal = str(saved + 30)  # beyond the end of an epoch
    resumed = run(["python", RESUME, dataset, "killed", "--steps", goal], folder)
    whole = steps(run(["python", RESUME, dataset, "whole", "--steps", goal], folder))

    assert saved >= 10
    assert steps(resumed) == {step: text for step, text in whole.items() if step > saved}


def test_a_run_stops_on_sigterm_with_a_checkpoint(folder: Path, dataset: str) -> None:
    """It ends with the step it is in, which the next run, with larger batches, goes on from."""
    command = runnable(["python", RESUME, dataset, "stopped", "--steps", "100000"])
    with subprocess.Popen(
        command, cwd=folder, env=variables(), stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdout is not None
        printed = ""
        for line in program.stdout:
            printed += line
            if line.startswith("step 3 "):
                program.send_signal(signal.SIGTERM)
    last = max(steps(printed))
    words = ["python", RESUME, dataset, "stopped", "--steps", str(last + 1), "--batch_size", "4"]
    resumed = run(words, folder)

    assert program.returncode == 0
    assert f"continuing after step {last}\n" in resumed
    assert list(steps(resumed)) == [last + 1]


def test_the_job_of_the_slurm_page(folder: Path, slurm: Cluster) -> None:
    """Two ranks on each of two nodes deliver every frame once."""
    make, submit = commands("slurm")
    place = str(folder / "my_dataset")
    run([place if word.startswith("/shared/") else word for word in make], folder)
    words = [place if word.startswith("/shared/") else word for word in submit[1:]]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    job = slurm.submit(
        *("--ntasks-per-node=2", "--gpus-per-node=2", "--cpus-per-task=1", *words),
        cwd=folder,
        env=variables(PATH=path, CUDA_VISIBLE_DEVICES="", MAIN_PORT="29541"),
    )

    assert slurm.wait(job)["JobState"] == "COMPLETED", slurm.output(job)
    assert "4 ranks delivered 300, 300, 300, 300 frames" in slurm.output(job)
    assert "1200 of 1200 frames, 0 twice" in slurm.output(job)
    done = subprocess.run(["shellcheck", REPO / "examples/tutorials/slurm_job.sh"], check=False)
    assert done.returncode == 0
