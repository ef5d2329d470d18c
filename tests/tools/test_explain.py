# SPDX-License-Identifier: Apache-2.0
"""A batch explained from a state equals the batch that loaders delivered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import torch
from PIL import Image

from robostream.assemble import DatasetLocation, OpenedDataset, SampleOptions, open_dataset
from robostream.errors import SelectionError, StateError
from robostream.plan import Cut, PlanState, parse_state
from robostream.tools import batch_sheet, explain_batch, load_state
from tests.fixture_datasets import FIXTURES
from tests.loader.streams import AV1, blind_stream, global_batches, open_loader


def opened(root: Path = AV1, **options: Any) -> OpenedDataset:
    return open_dataset(DatasetLocation(str(root)), SampleOptions(**options))


def state_of(**options: Any) -> PlanState:
    """The state of a run on one rank that has just begun."""
    return parse_state(open_loader(blind_stream(**options), 4).state_dict())


@pytest.mark.parametrize("world_size", [1, 2, 3])
@pytest.mark.parametrize("shuffle", [True, False])
def test_every_batch_of_an_epoch_is_explained(world_size: int, shuffle: bool) -> None:
    """The frames of each step over all ranks, also of the tail, and the rank of each."""
    options: dict[str, Any] = {"world_size": world_size, "shuffle": shuffle, "lanes": 6}
    loaders = [open_loader(blind_stream(rank=rank, **options), 4) for rank in range(world_size)]
    state = parse_state(loaders[0].state_dict())
    delivered = global_batches(loaders)
    cut = Cut(0, world_size, 4, drop_last=False)
    dataset = opened()
    found = [explain_batch(dataset, state, cut, step) for step in range(len(delivered))]

    assert [sorted(s.index for s in batch.samples) for batch in found] == delivered
    assert {batch.steps for batch in found} == {len(delivered)}
    tail = found[-1].samples
    assert [s.is_repeated for s in tail] == [s.position >= 62 for s in tail]
    assert [s.rank for s in tail] == [s.position % world_size for s in tail]


def test_a_state_explains_every_epoch_of_its_run() -> None:
    """A later state, and another epoch than its own."""
    loader = open_loader(blind_stream(), 4)
    epochs = [[sorted(batch["index"].tolist()) for batch in loader] for _ in range(3)]
    state = parse_state(loader.state_dict())
    cut = Cut(0, 1, 4, drop_last=False)
    for epoch, batches in enumerate(epochs):
        found = explain_batch(opened(), state, cut, 5, epoch=epoch)

        assert sorted(sample.index for sample in found.samples) == batches[5]


def test_steps_are_counted_from_where_a_run_resumed() -> None:
    """With another global batch, in the middle of an epoch and of the old steps."""
    first = open_loader(blind_stream(), 5)
    batches = iter(first)
    for _ in range(2):
        next(batches)
    state = first.state_dict()
    loaders = [open_loader(blind_stream(rank=rank, world_size=2), 3) for rank in range(2)]
    for loader in loaders:
        loader.load_state_dict(state)
    delivered = global_batches(loaders)
    cut = Cut(0, 2, 3, drop_last=False)
    found = [
        explain_batch(opened(), parse_state(state), cut, step, counted_from=10)
        for step in range(len(delivered))
    ]

    assert [sorted(s.index for s in batch.samples) for batch in found] == delivered
    assert {batch.steps for batch in found} == {len(delivered)}
    with pytest.raises(SelectionError, match="has 9 steps of 6 samples from position 10 on"):
        explain_batch(opened(), parse_state(state), cut, len(delivered), counted_from=10)


def test_a_state_of_another_kind_of_order_is_refused() -> None:
    """Mixtures, strides and weights have orders that one dataset does not determine."""
    state = parse_state(open_loader(blind_stream(stride=2), 4).state_dict())
    with pytest.raises(StateError, match="of a mixture, or of trimmed, strided or weighted"):
        explain_batch(opened(), state, Cut(0, 1, 4, drop_last=False), 0)


def test_a_selection_must_be_that_of_the_run() -> None:
    """With the same episodes it is explained; without them the error names the difference."""
    state, cut = state_of(episodes=[0, 3, 4]), Cut(0, 1, 4, drop_last=False)
    found = explain_batch(opened(episodes=[0, 3, 4]), state, cut, 0)

    assert {sample.episode for sample in found.samples} <= {0, 3, 4}
    with pytest.raises(StateError, match="selection of episodes"):
        explain_batch(opened(), state, cut, 0)


def test_quarantined_episodes_are_replaced_as_in_the_run() -> None:
    """A state lists them."""
    values = state_of().to_dict() | {"quarantined": [0, 1]}
    found = explain_batch(opened(), parse_state(values), Cut(0, 1, 62, drop_last=False), 0)

    assert found.quarantined == [0, 1]
    assert {sample.episode for sample in found.samples} == {2, 3, 4}


@pytest.mark.parametrize("name", ["av1_multifile", "h264_bframes", "h264_long_gop", "depth"])
def test_the_bytes_of_a_frame_decode_to_it(name: str, tmp_path: Path) -> None:
    """A file with zeros everywhere else still gives that frame to FFmpeg's own reader."""
    root = FIXTURES / name
    dataset = opened(root)
    state = parse_state(open_loader(blind_stream(root), 4).state_dict())
    (sample,) = explain_batch(dataset, state, Cut(0, 1, 1, drop_last=False), 7).samples
    (source,) = [s for s in sample.sources if s.feature == dataset.spec.videos[0]]
    content = (root / source.file).read_bytes()
    wanted = frame_of(root / source.file, source.number)
    head, tail = content.find(b"mdat") + 4, content.rfind(b"moov")
    stop = tail - 4 if tail > head else len(content)
    emptied = bytearray(content)
    emptied[head : source.start] = bytes(source.start - head)
    emptied[source.stop : stop] = bytes(stop - source.stop)
    (tmp_path / "clip.mp4").write_bytes(emptied)

    assert source.start < source.stop <= len(content)
    np.testing.assert_array_equal(frame_of(tmp_path / "clip.mp4", source.number), wanted)


def frame_of(path: Path, number: int | None) -> np.ndarray:
    """Decode a frame by its place in presentation order, going over what does not decode."""
    with av.open(path) as container:
        stream = container.streams.video[0]
        times = sorted(packet.pts for packet in container.demux(stream) if packet.pts is not None)
        assert number is not None
        container.seek(times[number], stream=stream)
        for packet in container.demux(stream):
            try:
                for frame in packet.decode():
                    if frame.pts == times[number]:
                        return frame.to_ndarray()
            except av.FFmpegError:
                continue
    raise AssertionError(f"{path} has no frame {number}")


def test_rows_have_the_bytes_of_their_row_group() -> None:
    """The data file and a range inside it; images in Parquet are there too."""
    root = FIXTURES / "images"
    state = parse_state(open_loader(blind_stream(root), 4).state_dict())
    found = explain_batch(opened(root), state, Cut(0, 1, 4, drop_last=False), 0)
    for sample in found.samples:
        (source,) = sample.sources

        assert source.feature == "rows"
        assert 0 < source.start < source.stop <= (root / source.file).stat().st_size


@pytest.mark.parametrize("step", [-1, 16, 10**9])
def test_a_step_that_is_not_in_the_epoch_is_refused(step: int) -> None:
    """The message counts the steps."""
    with pytest.raises(SelectionError, match=f"no step {step}: .* 62 frames has 16 steps"):
        explain_batch(opened(), state_of(), Cut(0, 1, 4, drop_last=False), step)


def test_states_are_found_in_json_and_checkpoints(tmp_path: Path) -> None:
    """At the top, or somewhere inside, as training programs save them."""
    state = state_of()
    (tmp_path / "a.json").write_text(json.dumps(state.to_dict()))
    (tmp_path / "b.json").write_text(json.dumps({"step": 3, "data": {"loader": state.to_dict()}}))
    weights = {"policy": torch.zeros(2), "loader": state.to_dict()}
    torch.save(weights, tmp_path / "c.pt")

    for name in ("a.json", "b.json", "c.pt"):
        assert load_state(tmp_path / name) == state


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.json", "{", "cannot be read"),
        ("a.json", "[1, 2]", "found 0"),
        ("a.json", '{"batches_consumed": 3, "batch_size": 4}', "only count batches"),
        ("a.pt", "no checkpoint", "cannot be read"),
        ("b.pt", "hello", "cannot be read"),
        ("none.json", None, "cannot be read"),
    ],
)
def test_what_is_no_state_is_refused(
    name: str, content: str | None, message: str, tmp_path: Path
) -> None:
    """The message names the file and what is wanted."""
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(StateError, match=message):
        load_state(tmp_path / name)


def test_two_states_in_one_file_are_refused(tmp_path: Path) -> None:
    """Nobody could say which one is meant."""
    both = {"train": state_of().to_dict(), "eval": state_of(seed=3).to_dict()}
    (tmp_path / "a.json").write_text(json.dumps(both))
    with pytest.raises(StateError, match="found 2"):
        load_state(tmp_path / "a.json")


def test_too_many_lanes_are_refused() -> None:
    """A damaged state must not take all memory."""
    state = parse_state(state_of().to_dict() | {"lanes": 1 << 40})
    with pytest.raises(StateError, match="lanes"):
        explain_batch(opened(), state, Cut(0, 1, 4, drop_last=False), 0)


def test_the_sheet_shows_the_frames_of_the_batch() -> None:
    """All cameras of the first samples."""
    dataset = opened()
    found = explain_batch(dataset, state_of(), Cut(0, 1, 10, drop_last=False), 0)
    sheets = [batch_sheet(dataset, found, most=most) for most in (3, 10)]

    assert sheets[0].width >= 3 * 2 * 120
    assert sheets[1].height > sheets[0].height
    assert isinstance(sheets[0], Image.Image)
    with pytest.raises(SelectionError, match="no cameras"):
        batch_sheet(opened(camera_keys=[]), found, most=3)
