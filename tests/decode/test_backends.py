# SPDX-License-Identifier: Apache-2.0
"""One contract for every backend that can be imported here."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable

import numpy as np
import pytest

from robostream.decode import Backend, PyavBackend, TorchcodecBackend
from robostream.decode.backends import begins_afresh
from robostream.decode.frame_index import Run, plan_runs
from robostream.errors import MissingExtraError, VideoFileError
from tests.decode.clips import open_file
from tests.decode.conftest import SampleVideo, local_engine
from tests.decode.videos import KINDS

VideoMaker = Callable[[str], SampleVideo]
BACKENDS: dict[str, Callable[[], Backend]] = {
    "pyav": PyavBackend,
    "one at a time": lambda: PyavBackend(frames_at_a_time=1),
}
if importlib.util.find_spec("torchcodec") is not None:
    BACKENDS["torchcodec"] = TorchcodecBackend
# torchcodec gives 8-bit RGB only, and cannot seek into an intra refresh.
COLOUR_KINDS = sorted(set(KINDS) - {"depth", "ten_bit", "h264_intra_refresh"})


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> Backend:
    """Each backend in turn."""
    return BACKENDS[request.param]()


@pytest.mark.parametrize("kind", COLOUR_KINDS)
def test_a_run_yields_its_frames_once(clip: VideoMaker, backend: Backend, kind: str) -> None:
    """Every shown frame from the run's first frame on comes once; anything else is number -1."""
    video = clip(kind)
    file = open_file(video)
    index = file.index
    last = np.array([index.num_frames - 1])
    for run in [*plan_runs(index, np.arange(index.num_frames)), *plan_runs(index, last)]:
        shown = index.frames_of(run.first_packet, run.stop_packet)
        got = [number for _, number, _ in backend.decode([(file, run)])]

        assert sorted(n for n in got if n >= 0) == sorted(n for n in shown if n >= run.first_frame)


@pytest.mark.parametrize("kind", COLOUR_KINDS)
def test_frames_are_right_in_any_order(clip: VideoMaker, backend: Backend, kind: str) -> None:
    """One by one in random order, frames equal the container's."""
    video = clip(kind)
    with local_engine(backend=backend) as engine:
        for frame in np.random.default_rng(5).permutation(len(video))[:24].tolist():
            out = video.slots(1)
            engine.read(video.file, [frame], out)

            np.testing.assert_array_equal(out[0], video.pictures[frame])


def test_frames_outlive_the_run(clip: VideoMaker, backend: Backend) -> None:
    """Frames held while the decoder goes on do not change."""
    video = clip("h264_bframes")
    file = open_file(video)
    pieces = [(file, run) for run in plan_runs(file.index, np.arange(file.index.num_frames))]
    pictures = {n: p for _, n, p in backend.decode(pieces) if p is not None}
    before = {n: [a.tobytes() for a in p.arrays()] for n, p in pictures.items()}
    list(backend.decode(pieces))

    assert {n: [a.tobytes() for a in p.arrays()] for n, p in pictures.items()} == before


def test_an_abandoned_run_spoils_nothing(clip: VideoMaker, backend: Backend) -> None:
    """A run left in the middle, or failed, leaves the next one right."""
    video = clip("h264_bframes")
    file = open_file(video)
    whole = file, plan_runs(file.index, np.arange(file.index.num_frames))[0]
    for _ in range(3):
        next(iter(backend.decode([whole])))
        with local_engine(backend=backend) as engine:
            out = video.slots(1)
            engine.read(video.file, [17], out)

            np.testing.assert_array_equal(out[0], video.pictures[17])


def test_recovery_points_are_told_from_key_pictures(clip: VideoMaker) -> None:
    """H.264 open GOPs and intra refreshes are decoded from the IDR picture before."""
    for kind, expected in (("h264_bframes", True), ("h264_open_gop", False)):
        video = clip(kind)
        index = open_file(video).index
        second = int(index.starts[1])
        at = int(index.byte_offsets[second])
        packet = memoryview(video.path.read_bytes())[at : at + int(index.sizes[second])]

        assert begins_afresh(packet, index.configs[0]) is expected


def test_parameter_sets_in_the_stream_do_not_leak(clip: VideoMaker) -> None:
    """After a run that brought its own parameter sets, the first part still decodes right."""
    video = clip("in_band_parameters")
    file = open_file(video)
    index = file.index
    backend = PyavBackend()
    engine = local_engine(backend=backend)
    for frame in (0, 40, 0, 47, 5, 30):
        out = video.slots(1)
        engine.read(video.file, [frame], out)
        np.testing.assert_array_equal(out[0], video.pictures[frame])
    first = int(index.starts[4])
    start = Run(first, first + 2, int(index.start_frames[4]), index.configs[0])

    assert len(list(backend.decode([(file, start)]))) == 2


def test_a_missing_torchcodec_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without torchcodec, asking for it says what to install."""
    monkeypatch.setitem(sys.modules, "torchcodec.decoders", None)

    with pytest.raises(MissingExtraError, match=r"pip install 'robostream\[torchcodec\]'"):
        TorchcodecBackend()


def test_depth_is_not_for_eight_bit_backends(clip: VideoMaker) -> None:
    """A depth video read as colour is refused."""
    video = clip("depth")
    engine = local_engine()

    with pytest.raises(VideoFileError, match="depth frames"):
        engine.read(video.file, [0], np.zeros((1, 3, 64, 96), np.uint8))
