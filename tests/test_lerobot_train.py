# SPDX-License-Identifier: Apache-2.0
"""What LeRobot's command is given in place of its own datasets, loaders and samplers.

These tests need no LeRobot: a stand-in calls the names as its functions do. The command itself runs
in tests/test_lerobot_command.py.
"""

from __future__ import annotations

import contextlib
import json
import logging
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from torch.utils.data import DataLoader

from robostream import (
    LeRobotDataset,
    SelectionError,
    StateError,
    StreamingDataLoader,
    StreamingLeRobotDataset,
)
from robostream.lerobot_train import (
    TESTED,
    LeRobotRun,
    cap_evaluation,
    refuse_job,
    replace_names,
    training_order,
    warn_of_untested,
)
from tests.fixture_datasets import FIXTURES

ROOT = str(FIXTURES / "av1_multifile")


class Factory:
    """The two functions of LeRobot's factory, reduced to the calls they make."""

    def make_dataset(self, cfg: Any) -> Any:
        """Open the dataset of a run."""
        options = {"episodes": cfg.dataset.episodes, "image_transforms": None}
        if cfg.dataset.streaming:
            stream = self.StreamingLeRobotDataset  # type: ignore[attr-defined]
            return stream(cfg.dataset.repo_id, root=ROOT, max_num_shards=4, **options)
        return self._open(cfg, **options)

    def make_train_eval_datasets(self, cfg: Any) -> tuple[Any, Any]:
        """Open the whole dataset, then both halves of a split."""
        whole = self.make_dataset(cfg)
        if not cfg.dataset.eval_split:
            return whole, None
        episodes = whole.episodes or list(range(whole.num_episodes))
        return self._open(cfg, episodes=episodes[:-2]), self._open(cfg, episodes=episodes[-2:])

    def _open(self, cfg: Any, **options: Any) -> Any:
        dataset = self.LeRobotDataset  # type: ignore[attr-defined]
        return dataset(cfg.dataset.repo_id, root=ROOT, video_backend=None, **options)


class Accelerator:
    """Prepares a loader by naming it."""

    def prepare_data_loader(self, loader: Any, device_placement: bool = True) -> Any:
        """Return what it was given."""
        return "prepared", loader, device_placement


def config(streaming: bool = True, seed: int | None = 5, **changes: Any) -> SimpleNamespace:
    """A configuration of a run, with the fields that datasets follow from."""
    data = {"repo_id": "some/name", "streaming": streaming, "episodes": None, "eval_split": 0.0}
    fields = {
        "dataset": SimpleNamespace(**data | changes.pop("dataset", {})),
        "seed": seed,
        "resume": False,
        "policy": SimpleNamespace(),
    }
    return SimpleNamespace(**fields | changes)


def command(*makers: str) -> SimpleNamespace:
    """The names of LeRobot's command that are replaced."""

    def save(checkpoint_dir: Path, step: int) -> None:
        (checkpoint_dir / "training_state").mkdir(parents=True)

    names = dict.fromkeys((*makers, "EpisodeAwareSampler"), object())
    return SimpleNamespace(**names, save_checkpoint=save)


def start(*makers: str) -> tuple[SimpleNamespace, SimpleNamespace]:
    """LeRobot's command and Accelerate after their names are replaced."""
    factory, replaced = Factory(), command(*makers)
    accelerate = SimpleNamespace(Accelerator=Accelerator)
    replace_names(LeRobotRun(factory), replaced, factory, accelerate)
    return replaced, accelerate


def prepare(accelerate: SimpleNamespace, dataset: Any, batch_size: int = 4) -> Any:
    """The loader that LeRobot gets from Accelerate."""
    loader: DataLoader[Any] = DataLoader(dataset, batch_size, num_workers=0)
    return accelerate.Accelerator().prepare_data_loader(loader, device_placement=False)


@pytest.mark.parametrize(("given", "used"), [(7, 7), (0, 0), (None, 0)])
def test_the_stream_has_the_seed_of_the_run(given: int | None, used: int) -> None:
    """`--seed` of LeRobot is the seed of the order; None means 0, as for LeRobot's sampler."""
    replaced, _ = start("make_dataset")
    stream = replaced.make_dataset(config(seed=given))

    assert isinstance(stream, StreamingLeRobotDataset)
    assert (stream.seed, stream.shuffle) == (used, True)


def test_a_negative_seed_is_refused() -> None:
    """The error names the flag."""
    with pytest.raises(SelectionError, match="seed"):
        training_order(config(seed=-1))


def test_the_stream_reads_the_chosen_episodes() -> None:
    """`--dataset.episodes`, which LeRobot's own stream ignores."""
    replaced, _ = start("make_dataset")

    assert replaced.make_dataset(config(dataset={"episodes": [1, 3]})).episodes == [1, 3]


@pytest.mark.parametrize("maker", ["make_dataset", "make_train_eval_datasets"])
def test_a_resumed_stream_continues_after_the_last_checkpoint(tmp_path: Path, maker: str) -> None:
    """The checkpoint has the loader's state, and another process begins behind it."""
    replaced, accelerate = start(maker)
    made = getattr(replaced, maker)(config())
    stream = made if maker == "make_dataset" else made[0]
    batches = iter(prepare(accelerate, stream))
    indices = [next(batches)["index"].tolist() for _ in range(5)]
    replaced.save_checkpoint(checkpoint_dir=tmp_path, step=5)
    rest = [batch["index"].tolist() for batch in batches]

    state = json.loads((tmp_path / "training_state" / "loader_state.json").read_text())
    assert (state["seed"], state["position"]) == (5, sum(map(len, indices)))
    replaced, accelerate = start(maker)
    made = getattr(replaced, maker)(config(resume=True, checkpoint_path=tmp_path))
    resumed = prepare(accelerate, made if maker == "make_dataset" else made[0])
    assert [batch["index"].tolist() for batch in resumed] == rest


def test_a_state_of_another_seed_is_refused(tmp_path: Path) -> None:
    """A resumed run with another `--seed` would repeat and skip frames."""
    replaced, accelerate = start("make_dataset")
    next(iter(prepare(accelerate, replaced.make_dataset(config()))))
    replaced.save_checkpoint(checkpoint_dir=tmp_path, step=1)

    with pytest.raises(StateError, match="seed"):
        replaced.make_dataset(config(seed=6, resume=True, checkpoint_path=tmp_path))


def test_a_checkpoint_of_lerobot_alone_starts_the_data(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """There is no position to continue from, and the log says so."""
    replaced, accelerate = start("make_dataset")
    stream = replaced.make_dataset(config(resume=True, checkpoint_path=tmp_path))

    assert "loader_state.json does not exist" in caplog.text
    assert "from the beginning of epoch 0" in caplog.text
    assert sum(len(batch["index"]) for batch in prepare(accelerate, stream)) == stream.num_frames


def test_held_out_episodes_are_streams_too(tmp_path: Path) -> None:
    """The half to evaluate on is in dataset order, every time; its loader is not the one saved."""
    replaced, accelerate = start("make_train_eval_datasets")
    cfg = config(dataset={"eval_split": 0.4, "depth_output_unit": "m"})
    train_set, eval_set = replaced.make_train_eval_datasets(cfg)
    feed, evaluation = prepare(accelerate, train_set), prepare(accelerate, eval_set)
    next(iter(feed))
    orders = [[i for batch in evaluation for i in batch["index"].tolist()] for _ in range(2)]
    replaced.save_checkpoint(checkpoint_dir=tmp_path, step=1)

    assert (train_set.episodes, eval_set.episodes) == ([0, 1, 2], [3, 4])
    assert (train_set.shuffle, eval_set.shuffle) == (True, False)
    assert (train_set.depth_output_unit, eval_set.depth_output_unit) == ("m", "m")
    assert orders[0] == orders[1] == sorted(orders[0])
    assert len(orders[0]) == eval_set.num_frames
    state = json.loads((tmp_path / "training_state" / "loader_state.json").read_text())
    assert (state["num_frames"], state["position"]) == (train_set.num_frames, 4)


def test_map_style_runs_use_robostreams_class_and_lerobots_loader(tmp_path: Path) -> None:
    """Accelerate prepares it, and no state of a loader is saved."""
    replaced, accelerate = start("make_train_eval_datasets")
    cfg = config(streaming=False, dataset={"eval_split": 0.4, "depth_output_unit": "mm"})
    train_set, eval_set = replaced.make_train_eval_datasets(cfg)
    prepared = prepare(accelerate, train_set)
    replaced.save_checkpoint(checkpoint_dir=tmp_path, step=1)

    assert (train_set.episodes, eval_set.episodes) == ([0, 1, 2], [3, 4])
    assert isinstance(train_set, LeRobotDataset)
    assert (prepared[0], prepared[1].dataset, prepared[2]) == ("prepared", train_set, False)
    assert list((tmp_path / "training_state").iterdir()) == []


def test_a_policys_last_frames_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """`drop_n_last_frames`, which LeRobot's own streams ignore; the log says so."""
    caplog.set_level(logging.INFO)
    lengths = StreamingLeRobotDataset("some/name", ROOT).meta.episodes["length"]
    count = min(lengths)
    replaced, _ = start("make_dataset")
    stream = replaced.make_dataset(config(policy=SimpleNamespace(drop_n_last_frames=count)))
    frames = {(int(s["episode_index"]), int(s["frame_index"])) for s in stream}

    assert f"drop_n_last_frames={count}" in caplog.text
    assert "LeRobot's own streams ignore" in caplog.text
    assert frames == {(e, f) for e, length in enumerate(lengths) for f in range(length - count)}
    assert len({episode for episode, _ in frames}) < len(lengths)


@pytest.mark.parametrize("policy", [SimpleNamespace(), SimpleNamespace(drop_n_last_frames=None)])
def test_most_policies_leave_out_nothing(
    policy: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    """Without the setting there is nothing to log."""
    caplog.set_level(logging.INFO)

    assert training_order(config(policy=policy)) == {"seed": 5}
    assert caplog.text == ""


def test_a_reward_model_has_the_setting_too() -> None:
    """LeRobot 0.6 trains policies or reward models; the one that is trained counts."""
    caps = config(policy=None, trainable_config=SimpleNamespace(drop_n_last_frames=0))

    assert training_order(caps) == {"seed": 5}


def test_a_stream_has_no_sampler() -> None:
    """LeRobot 0.4.4 would pass one to the loader, which torch refuses."""
    replaced, _ = start("make_dataset")
    replaced.make_dataset(config())

    assert replaced.EpisodeAwareSampler([0], [9], shuffle=True) is None


def test_the_sampler_of_lerobot_0_4_is_replaced() -> None:
    """Of chosen episodes, it takes their frames without the last ones, seeded."""
    replaced, _ = start("make_dataset")
    dataset = replaced.make_dataset(config(streaming=False, dataset={"episodes": [1, 3]}))
    table = dataset.meta.episodes
    sampler = replaced.EpisodeAwareSampler(
        table["dataset_from_index"],
        table["dataset_to_index"],
        episode_indices_to_use=dataset.episodes,
        drop_n_last_frames=2,
        shuffle=True,
    )
    rows = [dataset.get_raw_item(item) for item in sampler]
    lengths = {episode: table[episode]["length"] for episode in (1, 3)}

    assert sampler.seed == 5
    assert sorted((int(r["episode_index"]), int(r["frame_index"])) for r in rows) == [
        (episode, frame) for episode in (1, 3) for frame in range(lengths[episode] - 2)
    ]


def test_later_samplers_of_lerobot_stay() -> None:
    """LeRobot 0.6 passes the frames of the selection to its own sampler."""
    replaced = command("make_dataset")
    replaced.EpisodeAwareSampler = lambda *bounds, **options: ("lerobots", bounds, options)
    factory, accelerate = Factory(), SimpleNamespace(Accelerator=Accelerator)
    replace_names(LeRobotRun(factory), replaced, factory, accelerate)
    replaced.make_dataset(config(streaming=False))
    made = replaced.EpisodeAwareSampler([0], [9], absolute_to_relative_idx=None)

    assert made == ("lerobots", ([0], [9]), {"absolute_to_relative_idx": None})


def test_evaluation_takes_the_first_frames_of_each_task() -> None:
    """`max_eval_samples`, which LeRobot itself applies to its own class only."""
    dataset = LeRobotDataset("some/name", ROOT, camera_keys=[])
    tasks = dataset.select_columns("task_index")["task_index"].tolist()
    capped = cap_evaluation(SimpleNamespace(max_eval_samples=6), dataset)
    each = 6 // len(set(tasks))

    assert len(set(tasks)) > 1
    assert [capped[i]["index"].item() for i in range(len(capped))] == [
        index for task in sorted(set(tasks)) for index in first(tasks, task, each)
    ]
    assert cap_evaluation(SimpleNamespace(max_eval_samples=0), dataset) is dataset
    assert cap_evaluation(SimpleNamespace(), None) is None


def first(tasks: list[int], task: int, most: int) -> list[int]:
    return [index for index, other in enumerate(tasks) if other == task][:most]


def test_evaluation_of_a_stream_takes_the_same_frames() -> None:
    """The frames that a map-style dataset takes, in its order within each episode."""
    chosen = []
    for streaming in (True, False):
        cfg = config(streaming, dataset={"eval_split": 0.4}, max_eval_samples=6)
        replaced, _ = start("make_train_eval_datasets")
        _, eval_set = replaced.make_train_eval_datasets(cfg)
        samples = eval_set if streaming else [eval_set[i] for i in range(len(eval_set))]
        chosen.append(sorted(int(sample["index"]) for sample in samples))

    assert chosen[0] == chosen[1]
    assert 0 < len(chosen[0]) <= 6


def test_a_job_on_another_machine_is_refused() -> None:
    """LeRobot would start its own command there, without robostream."""
    with pytest.raises(SelectionError, match=r"--job\.target=a10g-small"):
        refuse_job(SimpleNamespace(job=SimpleNamespace(target="a10g-small")))


def test_an_unknown_lerobot_is_refused() -> None:
    """It would train on its own data if its functions were not replaced."""
    with pytest.raises(SelectionError, match="no make_dataset or make_train_eval_datasets"):
        start()


@pytest.mark.parametrize(("version", "warns"), [*((v, False) for v in TESTED), ("0.7.0", True)])
def test_untested_versions_give_a_warning(
    version: str, warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The versions of the tests do not."""
    warn_of_untested(version)

    assert (f"this is LeRobot {version}" in caplog.text) == warns


def test_a_missing_lerobot_is_an_error_with_a_cure() -> None:
    """`python -m robostream.lerobot_train` without LeRobot; no traceback."""
    done = subprocess.run(
        [sys.executable, "-m", "robostream.lerobot_train"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 1
    assert "pip install 'lerobot[training]==0.6.1'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.fixture
def mixture(tmp_path: Path) -> str:
    """Two datasets of other rates, one without a camera, described in YAML."""
    path = tmp_path / "mix.yaml"
    names = ("av1_multifile", "h264_bframes")
    sources = [{"repo_id": name, "root": str(FIXTURES / name), "weight": 1} for name in names]
    sources[1]["frames"] = {0: [[0, 10]]}
    path.write_text(yaml.safe_dump({"sources": sources, "epoch": 80, "seed": 3}))
    return str(path)


def open_windows(run: LeRobotRun, path: str, cfg: Any, **options: Any) -> Any:
    """What LeRobot's factory opens: metadata, then the stream with the policy's windows."""
    run._begin(cfg)
    meta = run.open_metadata(path)
    windows = {"action": [step / meta.fps for step in range(3)]}
    return run.open_stream(path, delta_timestamps=windows, max_num_shards=2, **options)


def test_a_mixture_takes_the_place_of_a_dataset(mixture: str) -> None:
    """Windows in frames of each dataset, statistics of all, and what LeRobot reads of metadata."""
    policy = SimpleNamespace(drop_n_last_frames=2)
    run = LeRobotRun(Factory())
    stream = open_windows(run, mixture, config(dataset={"repo_id": mixture}, policy=policy))
    (batch, *_) = StreamingDataLoader(stream, 8, num_workers=0)
    alone = [LeRobotDataset("x", FIXTURES / share.name).meta for share in stream.shares]
    counts = [int(meta.stats["action"]["count"][0]) for meta in alone]  # type: ignore[index]
    means = [meta.stats["action"]["mean"] for meta in alone]  # type: ignore[index]

    assert batch["action"].shape == (8, 3, 7)
    assert (stream.seed, stream.num_frames, stream.num_episodes) == (5, 80, 7)
    assert stream.meta.camera_keys == ["observation.images.top", "observation.images.wrist"]
    assert stream.meta.features["action"]["shape"] == (7,)
    pooled = (means[0] * counts[0] + means[1] * counts[1]) / sum(counts)
    assert np.allclose(stream.meta.stats["action"]["mean"], pooled)
    lengths = alone[0].episodes["length"]
    # The policy's frames are left out, unless a source chooses its own.
    assert stream.shares[0].frames == sum(max(0, length - 2) for length in lengths)
    assert stream.shares[1].frames == 10 + int(alone[1].episodes["length"][1])


@pytest.mark.parametrize(
    ("dataset", "options", "message"),
    [
        ({"streaming": False}, {}, "--dataset.streaming=true"),
        ({"eval_split": 0.1}, {}, "leave --dataset.eval_split out"),
        ({}, {"episodes": [1]}, "--dataset.episodes is for one dataset"),
        ({}, {"root": "here"}, "--dataset.root is for one dataset"),
    ],
)
def test_settings_of_one_dataset_are_refused(
    mixture: str, dataset: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    """Instead of being ignored."""
    cfg = config(dataset={"repo_id": mixture} | dataset)
    with pytest.raises(SelectionError, match=message):
        open_windows(LeRobotRun(Factory()), mixture, cfg, **options)


class MeanPolicy(torch.nn.Module):
    """A policy whose loss is the mean of its samples' dataset numbers, with noise and a count."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, batch: dict[str, Any]) -> tuple[torch.Tensor, dict[str, Any]]:  # noqa: D102
        assert isinstance(self.calls, torch.Tensor)
        self.calls += 1
        torch.rand(3)
        assert len(batch["task"]) == len(batch["value"])
        return batch["value"].mean(), {}


def test_the_loss_of_each_dataset_is_logged(mixture: str, caplog: pytest.LogCaptureFixture) -> None:
    """Every `log_freq` steps; the policy's buffers and random numbers stay as they were."""
    factory, replaced = Factory(), command("make_dataset")
    replaced.update_policy = lambda metrics, policy, batch, **options: (metrics, {})
    run = LeRobotRun(factory)
    replace_names(run, replaced, factory, SimpleNamespace(Accelerator=Accelerator))
    run._begin(config(dataset={"repo_id": mixture}, log_freq=2))
    run._train_set = open_windows(run, mixture, run._cfg)
    loader = run.feed(DataLoader(run._train_set, 8, num_workers=0))
    accelerator = SimpleNamespace(
        device=torch.device("cpu"),
        unwrap_model=lambda model: model,
        autocast=contextlib.nullcontext,
        reduce=lambda tensor, reduction: tensor,
        is_main_process=True,
    )
    policy, before = MeanPolicy(), torch.get_rng_state()
    for step, batch in zip(range(2), loader, strict=False):
        processed = {"task": batch["task"], "value": batch["dataset_index"].float() + 3}
        metrics = SimpleNamespace(steps=step)
        with caplog.at_level(logging.INFO):
            replaced.update_policy(metrics, policy, processed, accelerator=accelerator)

    assert policy.calls.tolist() == [0]
    assert torch.equal(before, torch.get_rng_state())
    losses = [message for message in caplog.messages if "loss by dataset" in message]
    assert losses == ["step:2 loss by dataset: av1_multifile 3.000, h264_bframes 4.000"]
