# SPDX-License-Identifier: Apache-2.0
"""Videos decoded on a GPU: the same pictures, order and state; what it cannot do is said.

Without a GPU, the same code runs with FFmpeg's decoders and memory of the CPU in place of NVDEC and
the GPU's memory. With one, NVDEC itself is tested too.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import av
import pytest
import torch

from robostream import LeRobotDataset, StreamingDataLoader
from robostream.decode import CodecConfig
from robostream.decode.backends import open_on_cpu
from robostream.device import count_workers, free_gpu_memory, gpu_decoding, total_gpu_memory
from robostream.device.gpu_decoding import DeviceRenderer, frame_on_device
from robostream.errors import SelectionError
from robostream.loader import resources, running_pool, share_of_cores
from tests.device.test_upload import TOP, on_host, recode
from tests.fixture_datasets import FIXTURES, copy_of
from tests.loader.streams import AV1, assert_equals_map_style, flat, open_loader, open_stream
from tests.parameters import long_except
from tests.servers.required import lacking, require_gpu


@pytest.fixture(autouse=True)
def pyav() -> None:
    """A PyAV that can; the oldest ones that robostream supports cannot."""
    if not hasattr(av.VideoFrame, "from_dlpack"):
        lacking("GPU", "this PyAV cannot hand on planes of a GPU")


@pytest.fixture(scope="module", params=[2, 250], ids=["g=2", "g=250"])
def h264(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset whose videos every GPU decodes, with short and with long GOPs."""
    root = copy_of("av1_multifile", tmp_path_factory.mktemp("h264"))
    for path in sorted((root / "videos").rglob("*.mp4")):
        recode(path, "yuv420p", request.param)
    return root


@pytest.fixture
def cuda() -> str:
    """A GPU."""
    require_gpu()
    return "cuda"


@pytest.fixture(params=["stand-in", "cuda"])
def gpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What decodes: the CPU in place of a GPU, or a GPU."""
    if request.param == "stand-in":
        _stand_in(monkeypatch)
        return "cpu"
    name: str = request.getfixturevalue("cuda")
    return name


def _stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the CPU in the place of a GPU, for loaders without workers."""

    def read(frame: av.VideoFrame, file: str) -> Any:
        return frame_on_device(frame.reformat(format="nv12"), file)

    def open_context(config: CodecConfig, device: str) -> av.VideoCodecContext:
        return open_on_cpu(config)

    monkeypatch.setattr(gpu_decoding, "open_on_gpu", open_context)
    monkeypatch.setattr(gpu_decoding, "frame_on_device", read)
    monkeypatch.setattr(running_pool, "choose_gpu", lambda asked, device, layout: "cpu")
    monkeypatch.setattr(resources, "free_gpu_memory", lambda gpu: 1 << 30)


LOADING = ("frame_cache_bytes", "shuffle", "episode_pool_size")


def open_gpu_loader(root: Path, gpu: str, batch_size: int = 4, **how: Any) -> StreamingDataLoader:
    """Return a loader that decodes on a GPU."""
    workers = how.pop("num_workers", 0)
    stream = open_stream(root, video_decode_device="cuda", **how)
    return open_loader(stream, batch_size, num_workers=workers)


@pytest.mark.parametrize(
    "options",
    long_except(
        [
            {},
            {"return_uint8": False},
            {"delta_timestamps": {TOP: [-0.1, 0.0], "action": [0.0, 0.05]}},
            {"frame_cache_bytes": 0},
            {"frame_cache_bytes": "20KiB"},
            {"shuffle": False},
            {"episode_pool_size": 2},
        ],
        {},
    ),
    ids=str,
)
def test_pictures_are_those_of_the_cpu(h264: Path, gpu: str, options: dict[str, Any]) -> None:
    """Bit for bit, every frame once, two epochs long."""
    loader = open_gpu_loader(h264, gpu, **options)
    own = {k: v for k, v in options.items() if k not in LOADING}
    items = LeRobotDataset("some/name", root=h264, **({"return_uint8": True} | own))
    batches = [on_host(batch, gpu) for _ in range(2) for batch in loader]
    for batch in batches:
        assert_equals_map_style(batch, items)

    assert sorted(flat(batches)) == sorted(2 * list(range(len(items))))
    assert loader.stats()["images_decoded"] > 0


def test_the_order_and_the_state_are_the_same(h264: Path, gpu: str) -> None:
    """A run goes on from the CPU to the GPU and back."""
    whole = flat(open_loader(open_stream(h264), 4))
    loader = open_gpu_loader(h264, gpu)
    batches = iter(loader)
    seen = flat([next(batches) for _ in range(3)])
    other = open_loader(open_stream(h264), 4)
    other.load_state_dict(loader.state_dict())

    assert seen + flat(other) == whole


def test_pictures_are_scaled_there(h264: Path, gpu: str) -> None:
    """With the same filter: planes are within 2 levels, colours within 4; on average a tenth."""
    items = LeRobotDataset("some/name", root=h264, return_uint8=True, resize=(24, 34))
    for batch in open_gpu_loader(h264, gpu, resize=(24, 34)):
        for place, index in enumerate(batch["index"].tolist()):
            found, wanted = batch[TOP][place].cpu().int(), items[index][TOP].int()
            off = (found - wanted).abs()

            assert off.max() <= 4
            assert off.float().mean() < 0.1


@pytest.mark.parametrize("mode", ["autocast", "inference"])
def test_modes_of_the_consumer_do_not_reach_pictures(h264: Path, gpu: str, mode: str) -> None:
    """Neither its precision, nor whether its tensors may be changed later."""
    if mode == "autocast":
        block: Any = torch.autocast(gpu, torch.bfloat16)
        assert_same_inside(block, h264, gpu, resize=(24, 34))
    else:
        assert_same_inside(torch.inference_mode(), h264, gpu)


def test_a_stream_of_the_consumer_does_not_reach_pictures(h264: Path, cuda: str) -> None:
    """Decoders and copies wait for each other, whatever stream is current."""
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    assert_same_inside(torch.cuda.stream(stream), h264, cuda)


def assert_same_inside(block: Any, root: Path, gpu: str, **options: Any) -> None:
    """Pictures inside a block, and after it, are those of a loader that never was in it."""
    wanted = [batch[TOP].cpu() for batch in open_gpu_loader(root, gpu, **options)]
    loader = open_gpu_loader(root, gpu, **options)
    with block:
        inside = [batch[TOP].cpu() for batch in loader]
    loader.set_epoch(0)
    after = [batch[TOP].cpu() for batch in loader]

    assert all(map(torch.equal, inside, wanted))
    assert all(map(torch.equal, after, wanted))


def test_a_thread_that_never_used_the_gpu_may_ask(h264: Path, gpu: str) -> None:
    """Decoders are opened by who asks for a batch first."""
    items = LeRobotDataset("some/name", root=h264, return_uint8=True)
    batches = iter(open_gpu_loader(h264, gpu))
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.extend(batches))
    thread.start()
    thread.join()
    for batch in found:
        assert_equals_map_style(on_host(batch, gpu), items)

    assert sorted(flat(found)) == list(range(len(items)))


def test_other_pictures_stay_on_the_cpu(gpu: str) -> None:
    """Depth and pictures in Parquet are delivered beside."""
    for name in ("depth", "images"):
        root = FIXTURES / name
        items = LeRobotDataset("some/name", root=root, return_uint8=True)
        if gpu == "cuda" and name == "depth":
            continue  # its colours are AV1, which not every GPU decodes
        for batch in open_gpu_loader(root, gpu):
            assert_equals_map_style(on_host(batch, gpu), items)


def test_a_worker_process_decodes(h264: Path, cuda: str) -> None:
    """Into memory of the GPU that this process sees too; CUDA shares it, so no CPU stands in."""
    items = LeRobotDataset("some/name", root=h264, return_uint8=True)
    for workers in (1, 2):
        loader = open_gpu_loader(h264, cuda, num_workers=workers)
        held = [on_host(batch, cuda) for _ in range(2) for batch in loader]
        for batch in held:
            assert_equals_map_style(batch, items)
        loader.close()


def test_as_many_workers_as_a_gpus_memory_has_room_for() -> None:
    """One for 6 GiB each, no more than 8 or than there are cores, and one at least."""
    gib = 1 << 30

    assert [count_workers(16, total * gib) for total in (4, 24, 80, 141)] == [1, 4, 8, 8]
    assert count_workers(2, 80 * gib) == 2


@pytest.mark.usefixtures("cuda")
def test_a_gpus_memory_is_known(h264: Path) -> None:
    """It is more than what is free, and says how many workers there are."""
    loader = StreamingDataLoader(open_stream(h264, video_decode_device="cuda"), 4)
    cores = share_of_cores(1)

    assert free_gpu_memory("cuda") < total_gpu_memory("cuda")
    assert loader.num_workers == count_workers(cores, total_gpu_memory("cuda"))


@pytest.mark.filterwarnings("ignore:Synchronization debug mode:UserWarning")
def test_workers_do_not_wait_for_the_gpu_to_label_a_parcel(cuda: str) -> None:
    """They would wait for all that it was told to do before, and for the other workers' turns."""
    content = torch.arange(96, dtype=torch.uint8, device=cuda)
    parcel = torch.zeros(96 + 64, dtype=torch.uint8, device=cuda)
    torch.cuda.set_sync_debug_mode("error")
    try:
        DeviceRenderer().write_yuv(content, parcel, label=5)
    finally:
        torch.cuda.set_sync_debug_mode("default")

    assert parcel.tolist() == [*range(96), 5, *[0] * 63]


@pytest.mark.parametrize("asked", ["gpu", "cuda:x", "mps", 3, None])
def test_what_is_no_device_is_refused(asked: Any) -> None:
    """At the call."""
    with pytest.raises(SelectionError, match="video_decode_device must be 'cpu', 'cuda'"):
        open_stream(AV1, video_decode_device=asked)


def test_a_missing_gpu_is_said() -> None:
    """With "cuda" as an error, with "auto" as a fallback."""
    asked = f"cuda:{torch.cuda.device_count() if torch.cuda.is_available() else 0}"
    with pytest.raises(SelectionError, match=r"torch .* sees \d+ CUDA devices"):
        open_loader(open_stream(AV1, video_decode_device=asked), 4)
    assert len(flat(open_loader(open_stream(AV1, video_decode_device="auto"), 4))) == 62


def test_single_samples_are_not_decoded_there() -> None:
    """A loop over the stream says so, instead of decoding elsewhere than asked."""
    with pytest.raises(SelectionError, match="only a StreamingDataLoader decodes on a GPU"):
        next(iter(open_stream(AV1, video_decode_device="cuda")))


@pytest.mark.usefixtures("cuda")
def test_transforms_are_refused(h264: Path) -> None:
    """They work on pictures of the CPU."""
    transform = {"image_transforms": lambda pictures: pictures}
    with pytest.raises(SelectionError, match="image_transforms need the frames"):
        open_loader(open_stream(h264, video_decode_device="cuda", **transform), 4)


@pytest.mark.usefixtures("cuda")
def test_what_a_gpu_cannot_decode_is_said(caplog: pytest.LogCaptureFixture) -> None:
    """With codec, GPU and command; "auto" falls back and says so."""
    name = torch.cuda.get_device_name()
    if "H200" not in name and "H100" not in name and "A100" not in name:
        lacking("GPU_WITHOUT_AV1", f"{name} may decode AV1")
    with pytest.raises(SelectionError, match=r"does not decode the av1 .*robostream recode"):
        open_loader(open_stream(AV1, video_decode_device="cuda"), 4)
    caplog.set_level("INFO")
    loader = open_loader(open_stream(AV1, video_decode_device="auto"), 4, device="cuda")
    assert len(flat(loader)) == 62
    assert "videos are decoded on the CPU" in caplog.text
