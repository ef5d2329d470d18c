# SPDX-License-Identifier: Apache-2.0
"""Batches delivered on a device: pictures travel as 4:2:0, are drawn there, and are the same."""

from __future__ import annotations

import gc
import os
import platform
import threading
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import torch

from robostream import LeRobotDataset, config
from robostream.device import BatchSlots, format_batch, upload
from robostream.device.upload import CudaUpload, PinnedSlots
from robostream.errors import SelectionError, VideoFileError
from robostream.loader import batch_bytes
from tests.fixture_datasets import FIXTURES, copy_of
from tests.forked import in_child
from tests.loader.streams import AV1, assert_equals_map_style, flat, open_loader, open_stream
from tests.loader.test_picture_sizes import SECOND
from tests.servers.required import lacking, require_gpu

TOP, WRIST = "observation.images.top", "observation.images.wrist"


@pytest.fixture(autouse=True)
def x86_64() -> None:
    """A machine on which FFmpeg has vector code."""
    if platform.machine() not in ("x86_64", "AMD64"):
        lacking("X86_64", "equal bits are promised on x86-64 only")


@pytest.fixture(params=["cpu", "cuda"])
def device(request: pytest.FixtureRequest) -> str:
    """A device; without a GPU the second is skipped, or with REQUIRE_GPU=1 a failure."""
    if request.param == "cuda":
        require_gpu()
    name: str = request.param
    return name


def on_host(batch: dict[str, Any], device: str) -> dict[str, Any]:
    """Return a batch on this side; all its tensors must have been on the device."""
    tensors = {key: value for key, value in batch.items() if isinstance(value, torch.Tensor)}
    assert {tensor.device.type for tensor in tensors.values()} == {device}
    return batch | {key: tensor.cpu() for key, tensor in tensors.items()}


def travels(loader: Any) -> dict[str, tuple[int, ...]]:
    """Return the shape of each camera's pictures of a sample, as workers build it."""
    arrays = loader._open().slots.format.arrays
    return {key: arrays[key][1] for key in loader.stream.meta.camera_keys}


def recode(path: Path, pix_fmt: str, gop: int = 250) -> None:
    """Encode a video again in another pixel format, at the same times."""
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        frames = [(f.pts, f.to_ndarray(format="rgb24")) for f in container.decode(stream)]
        rate, time_base = stream.average_rate, stream.time_base
        width, height = stream.width, stream.height
    with av.open(str(path), "w") as container:
        out = container.add_stream("libx264", rate, {"crf": "10", "g": str(gop)})
        out.width, out.height, out.pix_fmt, out.time_base = width, height, pix_fmt, time_base
        for pts, values in frames:
            frame = av.VideoFrame.from_ndarray(values, format="rgb24")
            frame.pts, frame.time_base = pts, time_base
            container.mux(out.encode(frame))
        container.mux(out.encode(None))


def test_more_batches_are_built_ahead_on_the_way_to_a_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Within the same memory, for pictures take half as much on the way."""
    monkeypatch.setattr(config, "BATCH_MEMORY_BYTES", 2 * 10**6)
    monkeypatch.setattr(config, "BATCH_MEMORY_PER_WORKER_BYTES", 10**6)
    stream = open_stream(AV1, return_uint8=True)
    loaders = [open_loader(stream, 4, num_workers=1, device=d) for d in (None, "cpu")]
    drawn, in_yuv = (batch_bytes(loader) for loader in loaders)

    assert in_yuv == pytest.approx(drawn / 2, rel=0.02)
    assert [loader.prefetch_factor for loader in loaders] == [
        2 * 10**6 // nbytes - 1 for nbytes in (drawn, in_yuv)
    ]
    assert batch_bytes(loaders[1]) <= loaders[1]._open().slots.format.slot_bytes
    loaders[1].close()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"return_uint8": False},
        {"delta_timestamps": {TOP: [-0.1, 0.0], "action": [0.0, 0.05]}},
        {"resize": (24, 34)},
        {"resize": {TOP: (33, 45)}},
        {"frame_cache_bytes": 0},
        {"frame_cache_bytes": "20KiB"},
    ],
    ids=str,
)
def test_batches_are_those_of_a_loader_without_a_device(
    device: str, options: dict[str, Any]
) -> None:
    """Every key of every sample equals the map-style item, bit for bit; every frame comes once."""
    loader = open_loader(open_stream(AV1, **options), 4, device=device)
    own = {key: value for key, value in options.items() if key != "frame_cache_bytes"}
    items = LeRobotDataset("some/name", root=AV1, **({"return_uint8": True} | own))
    batches = [on_host(batch, device) for _ in range(2) for batch in loader]
    for batch in batches:
        assert_equals_map_style(batch, items)

    assert sorted(flat(batches)) == sorted(2 * list(range(len(items))))
    is_odd = options.get("resize") == {TOP: (33, 45)}
    assert len(travels(loader)[TOP]) - ("delta_timestamps" in options) == (3 if is_odd else 1)
    assert len(travels(loader)[WRIST]) == 1


def test_workers_build_parcels_too(device: str) -> None:
    """So do processes that share all kept pictures, epoch after epoch, and a resume."""
    items = LeRobotDataset("some/name", root=AV1, return_uint8=True)
    loader = open_loader(open_stream(), 4, device=device, num_workers=2)
    for _ in range(2):
        for batch in loader:
            assert_equals_map_style(on_host(batch, device), items)
    batches = iter(loader)
    next(batches)
    other = open_loader(open_stream(), 4)
    other.load_state_dict(loader.state_dict())

    assert flat(other) == flat(batches)
    loader.close()


def test_batches_that_are_held_stay_as_they_are(device: str) -> None:
    """However many: a slot is used again only after it was copied from."""
    items = LeRobotDataset("some/name", root=AV1, return_uint8=True)
    held = list(open_loader(open_stream(), 2, device=device, num_workers=1))
    for batch in held:
        assert_equals_map_style(on_host(batch, device), items)

    assert len(held) == 31


def test_batches_arrive_where_python_starts_no_thread(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Python 3.12 does in programs whose main thread has ended."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    items = LeRobotDataset("some/name", root=AV1, return_uint8=True)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    batches = list(open_loader(open_stream(), 16, device=device))
    for batch in batches:
        assert_equals_map_style(on_host(batch, device), items)

    assert len(batches) == 4


def test_tensors_of_a_batch_change_by_themselves(device: str) -> None:
    """Autograd is not told that one has changed when another has, and none is a part of others."""
    (batch, *_) = open_loader(open_stream(return_uint8=False), 4, device=device)
    gain = torch.ones((), device=device, requires_grad=True)
    loss = (batch[TOP] * gain).sum() + (batch["action"] * gain).sum()
    batch[WRIST].sub_(0.5)
    batch["index"].add_(1)
    batch[WRIST].mul_(gain)
    loss.backward()

    assert gain.grad is not None


def test_iterators_take_turns(device: str, caplog: pytest.LogCaptureFixture) -> None:
    """Each begins with its next batch early; none is copied because of the others."""
    items = LeRobotDataset("some/name", root=AV1, return_uint8=True)
    loader = open_loader(open_stream(), 2, device=device, num_workers=2)
    live = [iter(loader) for _ in range(3)]
    found: list[list[Any]] = [[] for _ in live]
    for batches in zip(*live, strict=True):
        for own, batch in zip(found, batches, strict=True):
            own.append(on_host(batch, device))
    for batch in found[0]:
        assert_equals_map_style(batch, items)

    assert flat(found[0]) == flat(found[1]) == flat(found[2])
    assert "copied into memory of their own" not in caplog.text


@pytest.mark.parametrize("name", ["images", "depth"])
def test_pictures_of_other_kinds_travel_as_ever(device: str, name: str) -> None:
    """Depth and pictures in Parquet are not 4:2:0, and are delivered all the same."""
    root = FIXTURES / name
    items = LeRobotDataset("some/name", root=root, return_uint8=True)
    loader = open_loader(open_stream(root), 4, device=device)
    for batch in loader:
        assert_equals_map_style(on_host(batch, device), items)

    parcels = {key for key, shape in travels(loader).items() if len(shape) == 1}
    assert parcels == ({TOP} if name == "depth" else set())


def test_transformed_pictures_travel_as_ever(device: str) -> None:
    """The transform runs in the workers, on RGB."""
    options: dict[str, Any] = {"image_transforms": _halve, "return_uint8": True}
    items = LeRobotDataset("some/name", root=AV1, **options)
    loader = open_loader(open_stream(AV1, **options), 4, device=device)
    for batch in loader:
        assert_equals_map_style(on_host(batch, device), items)

    assert set(travels(loader).values()) == {(3, 24, 32)}


def test_full_chroma_travels_as_rgb(device: str, tmp_path: Path) -> None:
    """A camera whose first video is 4:4:4 is drawn by the workers; the others are not."""
    root = copy_of("av1_multifile", tmp_path)
    for path in sorted((root / "videos" / TOP).rglob("*.mp4")):
        recode(path, "yuv444p")
    items = LeRobotDataset("some/name", root=root, return_uint8=True)
    loader = open_loader(open_stream(root), 4, device=device)
    for batch in loader:
        assert_equals_map_style(on_host(batch, device), items)

    assert travels(loader)[TOP] == (3, 48, 64)
    assert len(travels(loader)[WRIST]) == 1


def test_a_video_of_another_format_inside_a_camera_is_refused(tmp_path: Path) -> None:
    """The error names the file, and what to do; without a device it is delivered."""
    root = copy_of("av1_multifile", tmp_path)
    recode(root / SECOND, "yuv444p")
    with pytest.raises(VideoFileError, match=r"not 8-bit 4:2:0.*leave out `device`") as error:
        list(open_loader(open_stream(root), 4, device="cpu"))

    assert SECOND.name in str(error.value)
    assert len(flat(open_loader(open_stream(root), 4))) == 62


@pytest.mark.parametrize("device", ["tpu", "mps", 3.5])
def test_devices_that_are_none_are_refused(device: Any) -> None:
    """At the call, with what would do."""
    with pytest.raises(SelectionError, match="device must be 'cuda', 'cuda:0' or 'cpu'"):
        open_loader(open_stream(), 4, device=device)


@pytest.mark.parametrize("device", ["cuda:99", "cuda"])
def test_a_gpu_that_is_not_there_is_refused(device: str) -> None:
    """At the call, with what torch sees."""
    if device == "cuda" and torch.cuda.is_available():
        device = f"cuda:{torch.cuda.device_count()}"
    with pytest.raises(SelectionError, match=rf"device='{device}': torch .* sees \d+ CUDA devices"):
        open_loader(open_stream(), 4, device=device)


class Stream:
    """Stands for a stream of CUDA's on the second of two GPUs."""

    device = torch.device("cuda", 1)

    def __init__(self, device: object = None) -> None:
        self.events: list[object] = []

    def synchronize(self) -> None:
        """Do nothing."""

    def wait_event(self, event: object) -> None:
        """Note what the consumer waits for."""
        self.events.append(event)


def test_a_batch_is_handed_over_on_the_gpu_it_lies_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever GPU "cuda" means in the thread that asks for it."""
    asked: list[object] = []
    consumer = Stream()

    def current_stream(device: object) -> Stream:
        asked.append(device)
        return consumer

    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "current_stream", current_stream)
    slots = BatchSlots(format_batch({"a": ((3,), np.uint8)}, 4), 3, max_held=2)
    on_gpu = CudaUpload(torch.device("cuda"), lambda *_: {}, slots)
    done: Any = object()

    assert on_gpu.hand_over({}, done) == {}
    assert asked == [Stream.device]
    assert consumer.events == [done]


class Cudart:
    """Stands for CUDA's runtime, which needs a GPU: notes what is page-locked."""

    def __init__(self) -> None:
        self.locked: dict[int, int] = {}
        self.error = 0

    def cudaHostRegister(self, address: int, nbytes: int, flags: int) -> int:
        """Lock pages, once."""
        assert address not in self.locked
        if not self.error:
            self.locked[address] = nbytes
        return self.error

    def cudaHostUnregister(self, address: int) -> int:
        """Let pages go."""
        del self.locked[address]
        return 0


@pytest.mark.long
def test_slots_are_page_locked_once_and_let_go(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each when it is first copied from; a refusal is only said, and forgotten by CUDA."""
    cudart, forgotten = Cudart(), list[int]()
    monkeypatch.setattr(upload, "_cudart", lambda: cudart)
    monkeypatch.setattr(upload, "_clear_error", lambda: forgotten.append(1))
    slots = BatchSlots(format_batch({"a": ((3,), np.uint8), "b": ((), np.int64)}, 4), 3, max_held=2)
    settled: list[int] = []
    pages = PinnedSlots(slots, lambda: settled.append(1))
    begin, nbytes = slots.memory.ctypes.data, slots.format.slot_bytes
    for slot in (1, 0, 1):
        pages.pin(slot)

    assert cudart.locked == {begin + nbytes: nbytes, begin: nbytes}
    assert not forgotten
    cudart.error = 2
    pages.pin(2)
    assert "CUDA error 2" in caplog.text
    assert forgotten == [1]
    held = [pages]
    del pages

    def drop() -> None:
        held.clear()
        gc.collect()
        assert not settled
        assert len(cudart.locked) == 2

    assert os.waitpid(in_child(drop), 0)[1] == 0
    held.clear()
    gc.collect()
    assert settled == [1]
    assert cudart.locked == {}


def _halve(pictures: Any) -> Any:
    return pictures[..., ::2, ::2]
