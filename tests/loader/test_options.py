# SPDX-License-Identifier: Apache-2.0
"""What a stream and a loader are asked for: honoured, warned of or refused; what they count."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import fsspec
import pytest
import torch

from robostream import StreamingLeRobotDataset
from robostream.decode import build_index
from robostream.errors import SelectionError
from robostream.loader import choose_depth
from tests.fixture_datasets import FIXTURES, copy_of
from tests.loader.streams import AV1, blind_stream, flat, open_loader, open_stream


def test_a_used_stream_pickles_small_and_works_elsewhere() -> None:
    """Decoders, frames and rows stay behind."""
    stream = open_stream()
    next(iter(open_loader(stream, 4)))
    blob = pickle.dumps(stream)

    assert len(blob) < 60_000
    assert sorted(flat(open_loader(pickle.loads(blob), 8))) == list(range(62))


@pytest.mark.parametrize(
    "name", ["buffer_size", "rng", "max_num_shards", "video_prefetch_workers", "decode_threads"]
)
def test_arguments_that_do_nothing_warn(name: str) -> None:
    """Arguments of other loaders are accepted, with a warning that says that they are ignored."""
    with pytest.warns(DeprecationWarning, match=f"{name} is ignored"):
        blind_stream(**{name: 4})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"streaming": False}, "use LeRobotDataset"),
        ({"video_decode_device": "gpu"}, "must be .cpu., .cuda."),
        ({"on_bad_episode": "ignore"}, "on_bad_episode must be one of"),
        ({"episodes": []}, "no episode"),
        ({"lanes": 0}, "lanes must be"),
        ({"frame_cache_bytes": "much"}, "want a size such as 2GiB"),
    ],
)
def test_what_cannot_be_honoured_is_refused(options: dict[str, Any], message: str) -> None:
    """An argument is honoured or an error, never shrugged off."""
    with pytest.raises(ValueError, match=message):
        blind_stream(**options)


def test_the_loader_refuses_what_is_no_stream() -> None:
    """A map-style dataset or a nonsense batch size is told at once."""
    with pytest.raises(SelectionError, match="want a StreamingLeRobotDataset"):
        open_loader([1, 2, 3], 2)  # type: ignore[arg-type]
    with pytest.raises(SelectionError, match="batch_size must be"):
        open_loader(blind_stream(), 0)


def test_data_may_lie_elsewhere_than_metadata(tmp_path: Path) -> None:
    """`data_files_root` holds data/ and videos/; metadata comes from root."""
    data = copy_of("av1_multifile", tmp_path)
    meta = tmp_path / "meta_only" / "meta"
    meta.parent.mkdir()
    (data / "meta").rename(meta)
    stream = StreamingLeRobotDataset("x", root=meta.parent, data_files_root=f"{data}/")

    assert sorted(flat(open_loader(stream, 8))) == list(range(62))


def test_indices_of_remote_videos_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second run opens remote videos from what the first one saved under the fingerprint."""
    monkeypatch.setenv("ROBOSTREAM_CACHE", str(tmp_path))
    memory = fsspec.filesystem("memory")
    memory.put(str(FIXTURES / "av1_multifile"), "/indexed", recursive=True)
    built: list[str] = []
    first_run = 0
    monkeypatch.setattr(
        "robostream.decode.video_files.build_index",
        lambda source: built.append(source.name) or build_index(source),
    )
    for _ in range(2):
        stream = StreamingLeRobotDataset("x", root="memory://indexed")
        assert sorted(flat(open_loader(stream, 8))) == list(range(62))
        # What decodes and what fetches ahead may come to a file at the same time.
        assert len(set(built)) == 6
        first_run = first_run or len(built)
    assert len(built) == first_run
    saved = tmp_path / "indices" / stream.meta.fingerprint
    assert len(list(saved.iterdir())) == 6


def test_a_cache_that_cannot_be_written_is_no_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Indices are then made each time, and it is said once."""
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("ROBOSTREAM_CACHE", str(tmp_path / "file"))
    fsspec.filesystem("memory").put(str(FIXTURES / "av1_multifile"), "/unkept", recursive=True)
    stream = StreamingLeRobotDataset("x", root="memory://unkept")

    assert sorted(flat(open_loader(stream, 8))) == list(range(62))
    assert caplog.text.count("cannot be saved") == 1


def test_statistics_are_flat_numbers_that_add_up() -> None:
    """stats() is ready for a logger; images are counted over all workers."""
    for workers in (0, 2):
        stream = open_stream(FIXTURES / "av1_multifile")
        loader = open_loader(stream, 8, num_workers=workers)
        batches = iter(loader)
        next(batches)
        early = loader.stats()
        assert early["images_per_s"] == pytest.approx(2 * early["samples_per_s"])
        list(batches)
        stats = loader.stats()

        assert all(isinstance(value, float) for value in stats.values())
        assert stats["samples"] == 62
        assert stats["images_delivered"] == 124
        assert stats["images_built"] >= 124
        assert stats["images_decoded"] >= 124
        assert stats["images_per_s"] == pytest.approx(2 * stats["samples_per_s"])
        assert stats["decode_s"] > 0
        assert stats["file_misses"] >= 6
    list(stream)
    assert stream.timing_stats()["decode_s_total"] > 0
    assert stream.video_decoder_cache_stats()["misses"] >= 6


def test_worker_settings_that_mean_nothing_here() -> None:
    """persistent_workers is what workers always are; a context is warned of."""
    assert open_loader(blind_stream(), 4, persistent_workers=False).num_workers == 0
    with pytest.warns(DeprecationWarning, match="multiprocessing_context is ignored"):
        open_loader(blind_stream(), 4, multiprocessing_context="spawn")


def test_pinning_without_a_gpu_is_no_error() -> None:
    """As in torch's own loader, batches then stay in plain memory."""
    batch = next(iter(open_loader(blind_stream(), 4, pin_memory=True)))

    assert batch["index"].is_pinned() is torch.cuda.is_available()


def test_large_batches_are_built_fewer_at_a_time() -> None:
    """Prefetch keeps to the memory batches may take, with two at least; small ones are many."""
    assert choose_depth(64, 20 << 20, 2) == 4
    assert choose_depth(64, 300 << 20, 2) == 2
    assert choose_depth(64, 4 << 30, 2) == 2
    assert choose_depth(1, 1 << 10, 2) == 256
    assert choose_depth(32, 20 << 20, 16) == 16
    assert choose_depth(16, 40 << 20, 16) == 18


def test_unknown_arguments_are_refused() -> None:
    """Only the arguments of other loaders that are known by name have no effect."""
    with pytest.raises(TypeError, match="unexpected keyword argument 'pool_size'"):
        open_stream(pool_size=8)


def test_arguments_by_position_are_refused_by_name() -> None:
    """LeRobot's constructor takes more by position; what each value is for is said."""
    first = ("some/name", AV1, None, None, None, 1e-4, None, False)

    assert StreamingLeRobotDataset(*first, rank=0, world_size=1).num_episodes == 5
    with pytest.raises(TypeError, match=r"by name.*streaming=, episode_pool_size=, buffer_size="):
        StreamingLeRobotDataset(*first, True, 64, None)
