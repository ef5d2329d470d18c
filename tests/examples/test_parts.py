# SPDX-License-Identifier: Apache-2.0
"""The parts of the training program: checkpoints, logs, launchers."""

from __future__ import annotations

import ast
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import robostream
import robostream.plan
from examples.scaling.checkpoint import choose_checkpoint, find_checkpoints, write_checkpoint
from examples.scaling.files import LineLog
from examples.scaling.preemption import stop_on_signals
from examples.scaling.processes import adopt_slurm, check_group
from examples.scaling.training import train
from robostream import save_training_step
from robostream.config import SEED
from robostream.errors import StateError
from tests.examples.runs import PROGRAM, REPO, environment, flags, options
from tests.servers.ports import free_port


def save(output_dir: Path, step: int, keep: int = 2) -> Path:
    def fill(folder: Path) -> None:
        save_training_step(folder, step, num_processes=1, batch_size=1)

    return write_checkpoint(output_dir, step, fill, keep=keep)


def test_a_second_ctrl_c_ends_at_once() -> None:
    """The first asks for the end of the step, as other signals do."""
    with stop_on_signals() as request:
        signal.raise_signal(signal.SIGINT)
        assert request.is_made
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_the_seed_is_the_streams() -> None:
    """So `robostream order` with no seed given plans the same order."""
    assert options(Path()).seed == SEED


def test_a_checkpoint_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    """What fails on the way leaves nothing that is taken for one, and can be done again."""

    def fail(folder: Path) -> None:
        (folder / "model.pt").write_bytes(b"half")
        raise OSError("disk full")

    first = save(tmp_path, 5)
    with pytest.raises(OSError, match="disk full"):
        write_checkpoint(tmp_path, 10, fail, keep=2)

    assert find_checkpoints(tmp_path) == [first]
    assert find_checkpoints(save(tmp_path, 10).parent) == [first, tmp_path / "checkpoint-10"]


def test_the_last_checkpoints_are_kept(tmp_path: Path) -> None:
    """They are ordered by their steps, not by their names."""
    for step in (8, 9, 10, 11):
        save(tmp_path, step)

    assert [path.name for path in find_checkpoints(tmp_path)] == ["checkpoint-10", "checkpoint-11"]
    assert {path.name for path in tmp_path.iterdir()} == {"checkpoint-10", "checkpoint-11"}


def test_where_a_run_begins(tmp_path: Path) -> None:
    """`latest` may be the first start; other runs' checkpoints are not mixed with its own."""
    assert choose_checkpoint("latest", tmp_path / "new") is None
    assert choose_checkpoint(None, tmp_path / "new") is None
    first, last = save(tmp_path, 5), save(tmp_path, 10)
    assert choose_checkpoint("latest", tmp_path) == last
    assert choose_checkpoint(str(last), tmp_path) == last
    assert choose_checkpoint(str(first), tmp_path / "new") == first
    for chosen in (None, str(first)):
        with pytest.raises(ValueError, match=r"found .*checkpoint-10\. Resume from it with"):
            choose_checkpoint(chosen, tmp_path)
    with pytest.raises(StateError, match=r"no training_step\.json"):
        choose_checkpoint(str(tmp_path / "gone"), tmp_path / "new")


def test_a_log_goes_back_to_the_checkpoint(tmp_path: Path) -> None:
    """Lines of later steps, and one that a kill cut short, are taken out; the head stays."""
    path = tmp_path / "log.jsonl"
    path.write_text('{"head": 1}\n{"step": 1}\n{"step": 2}\n{"step": 3}\n{"st')
    log = LineLog(path, step=2)
    log.write({"step": 3, "again": True})
    log.close()

    found = [json.loads(line) for line in path.read_text().splitlines()]
    assert found == [{"head": 1}, {"step": 1}, {"step": 2}, {"step": 3, "again": True}]
    LineLog(path, step=0).close()
    assert path.read_text() == ""


def test_checkpoints_of_the_other_kind_are_refused(tmp_path: Path) -> None:
    """A streaming run does not go on map-style, nor the other way round."""
    train(options(tmp_path / "streamed", steps=1, dummy=True))
    train(options(tmp_path / "mapped", steps=1, dummy=True, map_style=True))

    for name, map_style, said in (
        ("streamed", True, "resume without --map_style"),
        ("mapped", False, "written with --map_style"),
    ):
        with pytest.raises(ValueError, match=said):
            train(
                options(
                    tmp_path / name, steps=2, dummy=True, map_style=map_style, resume_from="latest"
                )
            )


@pytest.mark.parametrize("dummy", [True, False])
def test_a_run_that_learns_and_a_dummy_do_not_mix(tmp_path: Path, dummy: bool) -> None:
    """Neither goes on from the other's checkpoint, in words and not in names of parameters."""
    train(options(tmp_path, steps=1, dummy=dummy))

    with pytest.raises(ValueError, match="was it written with --dummy, or with other sizes"):
        train(options(tmp_path, steps=2, dummy=not dummy, resume_from="latest"))


def test_examples_use_public_names_only() -> None:
    """Where an example needs more, the library lacks something."""
    public = {"robostream": robostream.__all__, "robostream.plan": robostream.plan.__all__}
    public["robostream"] = [*public["robostream"], "__version__"]
    nodes = [
        node
        for path in (REPO / "examples").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("robostream")
    ]
    used = {(node.module or "", alias.name) for node in nodes for alias in node.names}

    assert len(used) > 10
    assert {(module, name) for module, name in used if name not in public.get(module, [])} == set()


def test_srun_alone_is_launcher_enough() -> None:
    """A task of srun becomes a rank; what torchrun has set inside of srun stays."""
    task = {
        "SLURM_JOB_ID": "123456",
        "SLURM_PROCID": "3",
        "SLURM_STEP_NUM_TASKS": "4",
        "SLURM_LOCALID": "1",
        "SLURM_LAUNCH_NODE_IPADDR": "10.0.0.7",
    }
    alone, inside = dict(task), task | {"RANK": "0", "WORLD_SIZE": "2"}
    adopt_slurm(alone)
    adopt_slurm(inside)

    assert alone == task | {
        "RANK": "3",
        "WORLD_SIZE": "4",
        "LOCAL_RANK": "1",
        "MASTER_ADDR": "10.0.0.7",
        "MASTER_PORT": "23456",
    }
    assert inside == task | {"RANK": "0", "WORLD_SIZE": "2"}


@pytest.mark.parametrize("announced", [{"WORLD_SIZE": "2"}, {"MASTER_ADDR": "10.0.0.7"}])
def test_processes_that_do_not_know_each_other_are_refused(announced: dict[str, str]) -> None:
    """Each would train on all of the data, alone."""
    with pytest.raises(RuntimeError, match="found a group of 1"):
        check_group(announced, 1)
    check_group({"WORLD_SIZE": "2", "MASTER_ADDR": "10.0.0.7"}, 2)
    check_group({"WORLD_SIZE": "1", "MASTER_ADDR": "10.0.0.7"}, 1)
    check_group({}, 1)


@pytest.mark.long
def test_accelerates_lone_processes_are_noticed(tmp_path: Path) -> None:
    """`accelerate launch --cpu` on two machines starts processes that form no group."""
    launch = [str(Path(sys.executable).parent / "accelerate"), "launch", "--cpu"]
    places = ["--num_machines=2", "--num_processes=2", "--machine_rank=0"]
    places += ["--main_process_ip=127.0.0.1", f"--main_process_port={free_port()}"]
    done = subprocess.run(
        [*launch, *places, "--mixed_precision=no", str(PROGRAM), *flags(tmp_path, steps=1)],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode != 0
    assert "found a group of 1" in done.stderr
