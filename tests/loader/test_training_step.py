# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robostream.assemble import EpisodeSplit, split_episodes
from robostream.errors import SelectionError, StateError, WriteError
from robostream.loader.sampler import EpisodeAwareSampler, compute_sampler_state
from robostream.loader.training_step import (
    TrainingStep,
    load_training_step,
    resume_sampler,
    save_training_step,
)
from robostream.meta import LeRobotDatasetMetadata
from tests.fixture_datasets import FIXTURES


def make_sampler(frames: int = 105) -> EpisodeAwareSampler:
    return EpisodeAwareSampler([0], [frames], shuffle=True, seed=2)


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    """Every field comes back as it was given, from a folder made on the way."""
    folder = tmp_path / "000700" / "training_state"
    path = save_training_step(
        folder,
        700,
        num_processes=4,
        batch_size=8,
        grad_accum_steps=2,
        parallelism={"dp_replicate": 1, "dp_shard": 4},
        sampler_state={"epoch": 3, "start_index": 40},
        split=EpisodeSplit([0, 2, 3], [1]),
    )

    assert path == folder / "training_step.json"
    assert load_training_step(folder) == TrainingStep(
        step=700,
        num_processes=4,
        batch_size=8,
        grad_accum_steps=2,
        parallelism={"dp_replicate": 1, "dp_shard": 4},
        sampler_state={"epoch": 3, "start_index": 40},
        split=EpisodeSplit([0, 2, 3], [1]),
    )


def test_lerobot_finds_the_world_size_under_either_name(tmp_path: Path) -> None:
    """The file has the names of LeRobot 0.6.1 and of later ones, and no empty fields."""
    path = save_training_step(tmp_path, 7, num_processes=2, batch_size=10)

    assert json.loads(path.read_text()) == {
        "step": 7,
        "dp_world_size": 2,
        "num_processes": 2,
        "batch_size": 10,
    }


@pytest.mark.parametrize(
    ("fields", "want"),
    [
        ({"step": 5}, TrainingStep(5)),
        ({"step": 5, "num_processes": 2}, TrainingStep(5, num_processes=2)),
        ({"step": 5, "num_processes": 8, "dp_world_size": 4}, TrainingStep(5, num_processes=4)),
        (
            {"step": 5, "dp_world_size": 4, "batch_size": 3, "grad_accum_steps": 1, "new": []},
            TrainingStep(5, num_processes=4, batch_size=3, grad_accum_steps=1),
        ),
    ],
)
def test_files_of_all_lerobots_are_read(
    tmp_path: Path, fields: dict[str, Any], want: TrainingStep
) -> None:
    """Older files lack fields, newer ones have more; the newer name of the world size wins."""
    (tmp_path / "training_step.json").write_text(json.dumps(fields))

    assert load_training_step(tmp_path) == want


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no training_step.json in"),
        ("{", "is not JSON"),
        ("[]", "want a JSON object with 'step'"),
        ('{"batch_size": 3}', "want a JSON object with 'step'"),
        ('{"step": "7"}', "step must be >= 0, a whole number"),
        ('{"step": true}', "step must be >= 0, a whole number"),
        ('{"step": 7, "batch_size": 0}', "batch_size must be >= 1, a whole number"),
        ('{"step": 7, "split": [1]}', "want two lists of episodes"),
        ('{"step": 7, "split": {"train": [0]}}', "want two lists of episodes"),
        ('{"step": 7, "split": {"train": [0, 1], "val": [1]}}', r"found \[1\] in both"),
    ],
)
def test_broken_files_are_refused(tmp_path: Path, content: str | None, message: str) -> None:
    """A missing or damaged file is an error that says which and what is wrong."""
    if content is not None:
        (tmp_path / "training_step.json").write_text(content)

    with pytest.raises(StateError, match=message):
        load_training_step(tmp_path)


def test_a_split_that_leaks_is_not_saved(tmp_path: Path) -> None:
    """An episode in both halves is an error before anything is written."""
    with pytest.raises(SelectionError, match=r"found \[2\] in both"):
        save_training_step(
            tmp_path, 7, num_processes=1, batch_size=1, split=EpisodeSplit([0, 2], [2, 1])
        )
    assert not list(tmp_path.iterdir())


def test_the_split_of_a_checkpoint_is_that_of_its_run(tmp_path: Path) -> None:
    """What a checkpoint holds is what the same call gives again, numpy's numbers or Python's."""
    meta = LeRobotDatasetMetadata("some/name", FIXTURES / "av1_multifile")
    split = split_episodes(meta, val=0.4, seed=3)
    as_arrays = EpisodeSplit(*(np.array(half) for half in split))  # type: ignore[arg-type]
    save_training_step(tmp_path, 7, num_processes=1, batch_size=1, split=as_arrays)

    assert load_training_step(tmp_path).split == split == split_episodes(meta, val=0.4, seed=3)


def test_a_failed_save_leaves_the_old_file(tmp_path: Path) -> None:
    """Where nothing can be written the error says so, and nothing is left half done."""
    blocked = tmp_path / "file"
    blocked.write_text("in the way")

    with pytest.raises(WriteError, match="could not write"):
        save_training_step(blocked / "training_state", 7, num_processes=1, batch_size=1)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_saving_replaces_the_file_and_leaves_nothing_else(tmp_path: Path) -> None:
    """The second save is what is read, and no file it was written to aside remains."""
    save_training_step(tmp_path, 7, num_processes=1, batch_size=1)
    save_training_step(tmp_path, 8, num_processes=1, batch_size=1)

    assert load_training_step(tmp_path).step == 8
    assert [path.name for path in tmp_path.iterdir()] == ["training_step.json"]


def test_resuming_with_the_same_sizes_is_silent_and_exact(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Nothing is said, and the sampler goes on at the place the steps had reached."""
    sampler = make_sampler()
    saved = TrainingStep(11, num_processes=2, batch_size=10)
    with caplog.at_level(logging.INFO):
        place = resume_sampler(sampler, saved, batch_size=10, num_processes=2)
    whole = make_sampler()
    whole.set_epoch(1)

    assert place == sampler.state_dict() == {"epoch": 1, "start_index": 100}
    assert list(sampler) == list(whole)[100:]
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("processes", "batch_size", "exact", "changed"),
    [
        (4, 5, "the frames of each step. Not the same: which process reads a frame.", ""),
        (2, 16, "every frame of the epoch once", "pass sampler_state to save_training_step"),
        (3, 10, "every frame of the epoch once", "which frames make a step"),
    ],
)
def test_resuming_with_other_sizes_says_what_is_exact(
    caplog: pytest.LogCaptureFixture, processes: int, batch_size: int, exact: str, changed: str
) -> None:
    """The place is the one the checkpoint's own sizes give; a warning names what changes."""
    saved = TrainingStep(7, num_processes=2, batch_size=10)
    with caplog.at_level(logging.WARNING):
        place = resume_sampler(
            make_sampler(100), saved, batch_size=batch_size, num_processes=processes
        )

    assert place == {"epoch": 1, "start_index": 40}
    assert len(caplog.records) == 1
    assert "epoch 1, sample 40" in caplog.text
    assert exact in caplog.text
    assert changed in caplog.text


def test_a_run_that_changed_its_sizes_resumes_by_its_recorded_place(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """After a change the steps alone mislead; the place saved with them does not."""
    resumed_at = compute_sampler_state(7, 100, 10, 2)
    place = compute_sampler_state(2, 100, 16, 2, start=resumed_at)
    save_training_step(tmp_path, 9, num_processes=2, batch_size=16, sampler_state=place)
    saved = load_training_step(tmp_path)
    with caplog.at_level(logging.WARNING):
        got = resume_sampler(make_sampler(100), saved, batch_size=16, num_processes=2)

    assert got == {"epoch": 2, "start_index": 0}
    assert got != compute_sampler_state(9, 100, 16, 2)
    assert caplog.text == ""


def test_a_checkpoint_without_sizes_is_resumed_with_a_doubt(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An old file that has the step only is taken to be of the current sizes, and it is said."""
    with caplog.at_level(logging.WARNING):
        place = resume_sampler(make_sampler(100), TrainingStep(7), batch_size=10, num_processes=2)

    assert place == {"epoch": 1, "start_index": 40}
    assert "right only if it was written by 2 processes with batch size 10" in caplog.text


def test_a_checkpoint_of_another_dataset_is_refused() -> None:
    """A recorded place beyond the sampler's frames belongs to something else."""
    saved = TrainingStep(7, sampler_state={"epoch": 0, "start_index": 101})

    with pytest.raises(StateError, match="another dataset"):
        resume_sampler(make_sampler(100), saved, batch_size=10, num_processes=2)
