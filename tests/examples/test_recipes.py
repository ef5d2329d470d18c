# SPDX-License-Identifier: Apache-2.0
"""The recipes of docs/recipes: their commands do what the pages say."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from robostream import StreamingLeRobotDataset
from robostream.plan import Cursor, Cut, advance, format_receipt
from tests.examples.runs import REPO, environment
from tests.servers.ports import free_port
from tests.servers.required import lacking

pytestmark = pytest.mark.long

PAGES = REPO / "docs" / "recipes"
TORCHRUN = ("-m", "torch.distributed.run", "--master-port")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a reader runs the commands: a folder with the examples."""
    packages = ("jax", "lightning", "tensorboard", "transformers")
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        lacking("RECIPES", f"{', '.join(missing)} not installed: pip install 'robostream[recipes]'")
    (tmp_path / "examples").symlink_to(REPO / "examples")
    return tmp_path


def blocks(page: str, language: str) -> list[str]:
    text = (PAGES / f"{page}.md").read_text()
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def commands(page: str) -> list[list[str]]:
    """The commands of a page, without its installation."""
    (block,) = blocks(page, "sh")
    lines = [shlex.split(line) for line in block.splitlines()]
    return [words for words in lines if words[0] != "pip"]


def runnable(words: list[str]) -> list[str]:
    """A command with this Python."""
    program, *arguments = words
    if program == "torchrun":
        return [sys.executable, *TORCHRUN, str(free_port()), *arguments]
    return [sys.executable, *(["-m", "robostream"] if program == "robostream" else []), *arguments]


def variables() -> dict[str, str]:
    path = os.pathsep.join([str(REPO / "src"), os.environ.get("PYTHONPATH", "")])
    return environment() | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu"}


def run(words: list[str], folder: Path) -> str:
    done = subprocess.run(
        runnable(words), cwd=folder, env=variables(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def steps(printed: str) -> dict[int, str]:
    """By step: epoch, position, receipt and loss."""
    return {int(n): rest for n, rest in re.findall(r"^step (\d+) (.*)$", printed, re.MULTILINE)}


def shown(page: str) -> dict[int, str]:
    """The steps that a page shows, as patterns; receipts and losses may differ."""
    (text,) = blocks(page, "text")
    return {n: re.escape(rest).replace(r"\.\.\.", r"\S+") for n, rest in steps(text).items()}


def planned(dataset: Path, ranks: int, count: int) -> list[str]:
    """Where a run with batches of 8 on each rank stands after each step, and the receipts there."""
    stream = StreamingLeRobotDataset(str(dataset), camera_keys=[], seed=0, rank=0, world_size=ranks)
    cut = Cut(0, ranks, 8, drop_last=False)
    places = [advance(cut, stream.num_frames, Cursor(0, 0), n + 1) for n in range(count)]
    return [
        f"epoch {at.epoch} position {at.position} receipt "
        + format_receipt(stream.plan(at.epoch).receipt(at.position))
        for at in places
    ]


@pytest.mark.parametrize("page", sorted(PAGES.glob("*.md")), ids=lambda path: path.stem)
def test_a_recipe_is_short(page: Path) -> None:
    """At most 40 lines, with the program in a file of its own."""
    assert len(page.read_text().splitlines()) <= 40


@pytest.mark.parametrize(("page", "ranks"), [("lightning", 2), ("hf-trainer", 1), ("jax", 1)])
def test_a_stopped_run_continues_as_if_nothing_had_happened(
    page: str, ranks: int, folder: Path
) -> None:
    """The page's commands stop in the middle of an epoch and go on into the next.

    Steps, positions and receipts are the plan's, for all ranks together; the losses are those of a
    run without a stop; the lines that the page shows are among them.
    """
    make, first, second, *more = commands(page)
    run(make, folder)
    before, after = steps(run(first, folder)), steps(run(second, folder))
    whole = steps(run(["other" if word == "run" else word for word in second], folder))

    assert list(before) == list(range(1, 8))
    assert before == {step: line for step, line in whole.items() if step <= 7}
    assert after == {step: line for step, line in whole.items() if step >= min(shown(page))}
    places = [line.rpartition(" loss ")[0] for line in whole.values()]
    assert places == planned(folder / "my_dataset", ranks, max(shown(page)))
    for step, pattern in shown(page).items():
        assert re.fullmatch(pattern, after[step]), after[step]
    for words in more:
        assert list(steps(run(words, folder))) == list(range(1, 8))


def test_the_step_of_the_jax_recipe_has_no_torch() -> None:
    """Nothing of torch is imported or called in the program; robostream delivers the batches."""
    assert "torch" not in (REPO / "examples/recipes/plain_jax.py").read_text()


def test_the_statistics_reach_tensorboard(folder: Path) -> None:
    """Every number of `loader.stats()`, at every logged step."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for words in commands("logging"):
        run(words, folder)
    logs = EventAccumulator(str(folder / "logs")).Reload()
    names = set(logs.Tags()["scalars"])

    assert {"loss", "data/dataloading_s", "data/samples_per_s", "data/decode_s"} <= names
    assert [event.step for event in logs.Scalars("data/samples_per_s")] == [10, 20]
    assert all(event.value > 0 for event in logs.Scalars("data/samples_per_s"))


def test_the_line_for_weights_and_biases(folder: Path) -> None:
    """`wandb.log` gets a dict of numbers."""
    run(commands("logging")[0], folder)
    (line,) = blocks("logging", "python")[:1]
    program = FAKE + line + "print(len(logged[0]), set(map(type, logged[0].values())))\n"
    printed = run(["python", "-c", program], folder)

    assert re.fullmatch(r"\d\d+ \{.*float.*\}\n", printed)


FAKE = """
from robostream import StreamingDataLoader, StreamingLeRobotDataset

class wandb:
    @staticmethod
    def log(values, step):
        logged.append(values)

logged, step = [], 1
loader = StreamingDataLoader(StreamingLeRobotDataset("my_dataset"), 8)
next(iter(loader))
"""
