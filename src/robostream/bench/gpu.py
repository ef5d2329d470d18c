# SPDX-License-Identifier: Apache-2.0
"""`bench gpu`: images into the memory of a GPU, by each way there.

Workers convert frames to RGB and batches are copied ("rgb"), 4:2:0 is copied and converted on the
GPU ("yuv"), or the GPU decodes ("nvdec"). Each case runs in processes of its own.
"""

from __future__ import annotations

import json
import multiprocessing
import random
import subprocess
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from itertools import chain, product, repeat
from typing import Any

import torch

from robostream.bench import results
from robostream.bench.loaders import open_robostream
from robostream.bench.measure import PAST_S, Batch, BenchCase, BenchData, measure_loading
from robostream.bench.processes import decode_floor, run_process, touch_memory
from robostream.bench.results import Column, Figures, Measured, Publication, Table
from robostream.decode import FileRun, VideoFile, build_index, plan_runs
from robostream.device import open_nvdec
from robostream.errors import SelectionError
from robostream.loader import StreamingDataLoader, share_of_cores, usable_memory
from robostream.storage import LocalSource
from robostream.tools import SynthSpec

RGB, YUV, NVDEC = "rgb", "yuv", "nvdec"
_GPU = "cuda:0"
_TIMEOUT_S = 120.0
_SECONDS, _QUICK_SECONDS = 6.0, 2.0
# Less than all frames of a dataset take, at full size and resized.
_FRAME_CACHE, _RESIZED_FRAME_CACHE = "2GiB", "512MiB"
# The memory of a loader with that cache, batches included.
_TOUCHED_BYTES = 4 << 30
# The codecs to decode with NVDEC; some cases are measured with the first only.
NVDEC_CODECS = ("h264", "hevc")
PARTS = ("uploads", "ranks", *NVDEC_CODECS)
_SMALL, _MIDDLE, _LARGE = (256, 256), (480, 640), (720, 1280)
_RESIZED = (224, 224)
# Numbers of processes that only decode, and of a loader's workers.
_STREAMS = _LOADER_WORKERS = (1, 2, 4, 8)
# Numbers of ranks that share the GPU, and the workers that all of them together have.
_RANKS = (1, 2)
_SAMPLES: list[dict[str, Any]] = [{"batch_size": 64}, {"batch_size": 16, "window_s": PAST_S}]
# The fields that identify a row.
KEYS = ("way", "codec", "gop", "size", "window_s", "workers", "resize", "streams")
RANK_KEYS = (*KEYS, "ranks")


def run(
    quick: bool, parts: Sequence[str] = PARTS, workers: Sequence[int] = (), seconds: float = 0.0
) -> Measured:
    """Measure the parts; the arguments are those of the command."""
    if not torch.cuda.is_available():
        raise SelectionError("bench gpu: torch sees no CUDA device on this machine")
    seconds = seconds or (_QUICK_SECONDS if quick else _SECONDS)
    cores = share_of_cores(1)
    figures: Figures = {
        "machine": results.machine() | {"gpu": torch.cuda.get_device_name(), "cores": cores},
        "seconds": seconds,
    }
    tables: list[Table] = []
    if "uploads" in parts:
        usual = [cores] if quick else [n for n in (1, 2, 4, 8, 16, 32) if n <= cores]
        floor = 0.0
        figures["uploads"] = []
        for case in upload_cases(list(workers) or usual):
            if case.loader == RGB:  # both ways share a floor; they come one after the other
                floor = decode_floor(case.data.files(), case.workers or 1, at_most_s=seconds / 3)
            touch_memory(min(_TOUCHED_BYTES, usable_memory() // 2))
            figures["uploads"].append(_measure(case, seconds, floor))
        tables.append(_upload_table(figures["uploads"]))
    if "ranks" in parts:
        cases = list(rank_cases(cores))
        figures["ranks"] = [_measure(c, seconds, ranks=n) for c, n in product(cases, _RANKS)]
        tables.append(_rank_table(figures["ranks"]))
    nvdec = [case for codec in NVDEC_CODECS if codec in parts for case in nvdec_cases(codec)]
    if nvdec:
        figures["nvdec"] = [_measure(case, seconds) for case in nvdec]
        tables.append(_nvdec_table(figures["nvdec"]))
    return figures, "\n".join(table.text() for table in tables)


def _case(
    way: str,
    codec: str,
    gop: int,
    size: tuple[int, int],
    *,
    resize: tuple[int, int] | None = None,
    streams: tuple[int, ...] = (),
    **more: Any,
) -> BenchCase:
    """Return a case; its dataset has few different episodes, which are fast to make."""
    height, width = size
    spec = SynthSpec(
        episodes=640 if size == _SMALL else 128,
        min_frames=60,
        max_frames=100,
        cameras=3 if size == _SMALL else 2,
        width=width,
        height=height,
        gop=gop,
        distinct=2 if size == _LARGE else 4,
        video_file_mb=0.5,
    )
    if codec != "av1":
        spec = replace(spec, codec=codec, crf=23)
    frames = _RESIZED_FRAME_CACHE if resize else _FRAME_CACHE
    options = {
        "resize": resize,
        "streams": streams,
        "frame_cache_bytes": "auto" if way == NVDEC else frames,
    }
    data = BenchData(f"gpu-{codec}", spec, title=codec)
    return BenchCase(codec, data, loader=way, options=options, **more)


def upload_cases(workers: list[int]) -> Iterator[BenchCase]:
    """Yield the cases that compare RGB with 4:2:0, by workers."""
    sizes = ((_SMALL, None), (_MIDDLE, None), (_MIDDLE, _RESIZED))
    for (size, resize), sample, count, way in product(sizes, _SAMPLES, workers, (RGB, YUV)):
        yield _case(way, "av1", 2, size, resize=resize, workers=count, **sample)


def rank_cases(workers: int) -> Iterator[BenchCase]:
    """Yield the cases whose workers are divided among ranks that share a GPU."""
    for sample in _SAMPLES:
        yield _case(YUV, "av1", 2, _SMALL, workers=workers, **sample)


def nvdec_cases(codec: str) -> Iterator[BenchCase]:
    """Yield the cases that measure how fast a GPU decodes a codec, alone and in a loader."""
    case = partial(_case, NVDEC, codec, batch_size=64)
    most = _LOADER_WORKERS[-1]
    for gop, size in product((2, 250), (_SMALL, _LARGE)):
        yield case(gop, size, workers=1, streams=_STREAMS)
        yield case(gop, size, workers=most)
    if codec == NVDEC_CODECS[0]:
        for workers in _LOADER_WORKERS[:-1]:
            yield case(2, _SMALL, workers=workers)
        yield case(2, _LARGE, workers=most, resize=_RESIZED)


def case_fields(case: BenchCase) -> Figures:
    """Return a case as the fields of its row."""
    spec = case.data.spec
    return {
        "way": case.loader,
        "codec": case.data.title,
        "gop": spec.gop,
        "size": (spec.height, spec.width),
        "window_s": case.window_s,
        "workers": case.workers,
        **case.options,
    }


def _measure(
    case: BenchCase, seconds: float, floor: float | None = None, ranks: int | None = None
) -> Figures:
    figures: Figures = case_fields(case) | {
        "batch_size": case.batch_size,
        "seconds": seconds,
        "mode": case.mode,
        "git_commit": results.git_commit(),
    }
    if case.options["streams"]:
        figures |= run_process(measure_streams, case=case, seconds=seconds)
    elif ranks is None:
        figures |= run_process(measure_loader, case=case, seconds=seconds)
    else:
        rates = measure_ranks(case, ranks, seconds)
        figures |= {"ranks": ranks, "images_per_s_by_rank": rates, "images_per_s": sum(rates)}
    if floor is not None:
        figures |= {"floor_images_per_s": floor, "over_floor": figures["images_per_s"] / floor}
    # Printed at once, so an interrupted run is not lost.
    results.show_progress(json.dumps(figures))
    return figures


def measure_loader(case: BenchCase, seconds: float) -> Figures:
    """Deliver batches on the GPU for some seconds after the first; return the rates."""
    way = case.loader
    options = {name: value for name, value in case.options.items() if name != "streams"}
    options["video_decode_device"] = _GPU if way == NVDEC else "cpu"
    device = None if way == RGB else _GPU
    usage: AbstractContextManager[list[float]] = nullcontext([])
    if way == NVDEC:
        usage = decoder_usage(seconds)
    with usage as in_use:
        loader, figures = measure_loading(
            replace(case, options=options),
            partial(open_robostream, pin_memory=way == RGB, device=device),
            batches_of=partial(_batches_on_gpu, way=way),
            seconds=seconds,
            finish=torch.cuda.synchronize,
        )
    figures["decoded_per_delivered"] = loader.stats()["amplification"]
    figures["decoders_in_use"] = next(iter(in_use), None)
    loader.close()
    return figures


def measure_ranks(case: BenchCase, ranks: int, seconds: float) -> list[float]:
    """Return the rate of each of several ranks on one GPU, which divide the case's workers."""

    def measure(rank: int) -> float:
        share = {"rank": rank, "world_size": ranks}
        workers = (case.workers or 1) // ranks
        own = replace(case, workers=workers, options={**case.options, **share})
        return float(run_process(measure_loader, case=own, seconds=seconds)["images_per_s"])

    with ThreadPoolExecutor(ranks) as pool:
        return list(pool.map(measure, range(ranks)))


def _batches_on_gpu(loader: StreamingDataLoader, way: str) -> Iterator[Batch]:
    """Yield the batches of all epochs; the first only when its copy is complete."""
    for number, batch in enumerate(chain.from_iterable(repeat(loader))):
        if way == RGB:
            batch = {
                key: value.to(_GPU, non_blocking=True) if torch.is_tensor(value) else value
                for key, value in batch.items()
            }
        if number == 0:
            torch.cuda.synchronize()
        yield batch


def measure_streams(case: BenchCase, seconds: float) -> Figures:
    """Decode random GOPs on the GPU in several processes; return the rates by their number.

    All processes start at once, because that takes long; then more and more of them decode.
    """
    counts, spawn = case.options["streams"], multiprocessing.get_context("spawn")
    barrier, rates = spawn.Barrier(max(counts) + 1), spawn.Queue()
    processes = [
        spawn.Process(target=_decode, args=(number, case, seconds, barrier, rates))
        for number in range(max(counts))
    ]
    for process in processes:
        process.start()
    found = []
    for count in counts:
        barrier.wait(_TIMEOUT_S)
        with decoder_usage(seconds) as in_use:
            rate = sum(rates.get(timeout=_TIMEOUT_S) for _ in range(count))
        usage = next(iter(in_use), None)
        found.append({"streams": count, "images_per_s": rate, "decoders_in_use": usage})
    for process in processes:
        process.join()
    return {"by_streams": found}


def _decode(number: int, case: BenchCase, seconds: float, barrier: Any, rates: Any) -> None:
    runs = [run for file in case.data.files("videos/*/*/*.mp4")[:24] for run in _gops(file)]
    random.shuffle(runs)
    backend = open_nvdec(_GPU)
    list(backend.decode(runs[:4]))
    for count in case.options["streams"]:
        barrier.wait(_TIMEOUT_S)
        if number >= count:
            continue
        images, at, begin = 0, 0, time.perf_counter()
        while time.perf_counter() < begin + seconds:
            images += sum(1 for _ in backend.decode(runs[at : at + 16]))
            at = (at + 16) % len(runs)
        torch.cuda.synchronize()
        rates.put(images / (time.perf_counter() - begin))


def _gops(file: str) -> Iterator[FileRun]:
    """Yield the GOPs of a video, at most the first 64 frames of each."""
    source = LocalSource(file)
    index = build_index(source)
    video = VideoFile(source.name, source, index)
    starts = index.start_frames.tolist()
    for start, stop in zip(starts, [*starts[1:], index.num_frames], strict=True):
        frames = list(range(start, min(stop, start + 64)))
        yield video, plan_runs(index, frames)[0]


@contextmanager
def decoder_usage(seconds: float) -> Iterator[list[float]]:
    """Append the mean utilisation of the GPU's decoders in the block's last seconds to a list."""
    command = ["nvidia-smi", "-i", "0", "--query-gpu=utilization.decoder", "-lms", "250"]
    found: list[float] = []
    monitor = subprocess.Popen(
        [*command, "--format=csv,noheader,nounits"], stdout=subprocess.PIPE, text=True
    )
    try:
        yield found
    finally:
        monitor.terminate()
        lines = monitor.communicate()[0].split()
        shares = [float(line) / 100 for line in lines if line.isdigit()]
        if shares := shares[-round(4 * seconds) :]:
            found.append(sum(shares) / len(shares))


def _upload_table(measured: Sequence[Figures]) -> Table:
    """Return RGB beside 4:2:0, by image size, mode and workers. Pure."""
    pairs: dict[tuple[Any, ...], dict[str, Figures]] = {}
    for row in measured:
        order = tuple(row["size"]), tuple(row["resize"] or ()), len(row["window_s"]), row["workers"]
        pairs.setdefault(order, {})[row["way"]] = row
    return Table.of([pairs[order] for order in sorted(pairs)], _UPLOAD_COLUMNS)


def _rank_table(measured: Sequence[Figures]) -> Table:
    """Return one rank beside several with as many workers in all. Pure."""
    return Table.of(measured, _RANK_COLUMNS)


def _nvdec_table(measured: Sequence[Figures]) -> Table:
    """Return the rates of decoding alone and of loaders, by image size and codec. Pure."""
    header = ["images", "codec", "GOP"]
    header += [f"{n} alone" for n in _STREAMS] + [f"loader, {n}" for n in _LOADER_WORKERS]
    rows: dict[tuple[Any, ...], dict[str, str]] = {}
    for row in measured:
        cells = rows.setdefault((_size_text(row), row["codec"], row["gop"]), {})
        alone = {f"{one['streams']} alone": one for one in row.get("by_streams", ())}
        for title, one in (alone or {f"loader, {row['workers']}": row}).items():
            used = "" if one["decoders_in_use"] is None else f" ({one['decoders_in_use']:.2f})"
            cells[title] = f"{one['images_per_s']:,.0f}{used}"
    lines = [[*key, *(cells.get(title, "") for title in header[3:])] for key, cells in rows.items()]
    return Table(header, lines)


def _size_text(row: Figures) -> str:
    sizes = [row["size"], *([row["resize"]] if row["resize"] else [])]
    return " to ".join(f"{width}x{height}" for height, width in sizes)


# Of a pair of rows, one for each way.
_UPLOAD_COLUMNS: dict[str, Column] = {
    "images": lambda ways: _size_text(ways[YUV]),
    "samples": lambda ways: "single" if ways[YUV]["mode"] == "single" else "windows of 8",
    "workers": lambda ways: ways[YUV]["workers"],
    "raw decode": lambda ways: ways[YUV]["floor_images_per_s"],
    "RGB": lambda ways: ways[RGB]["images_per_s"],
    "4:2:0": lambda ways: ways[YUV]["images_per_s"],
    "gain": lambda ways: ways[YUV]["images_per_s"] / ways[RGB]["images_per_s"],
    "times raw decode": lambda ways: ways[YUV]["over_floor"],
    "decoded": lambda ways: ways[YUV]["decoded_per_delivered"],
}
_RANK_COLUMNS: dict[str, Column] = {
    "ranks on the GPU": "ranks",
    "workers of all": "workers",
    "samples": lambda row: "single" if row["mode"] == "single" else "windows of 8",
    "images/s of each": lambda row: ", ".join(f"{r:,.0f}" for r in row["images_per_s_by_rank"]),
    "images/s of all": "images_per_s",
}
PUBLICATION: Publication = Publication(
    "gpu.json",
    {
        results.DOCS: {
            "gpu uploads": lambda repo: _upload_table(PUBLICATION.read(repo)["uploads"]).markdown(),
            "gpu ranks": lambda repo: _rank_table(PUBLICATION.read(repo)["ranks"]).markdown(),
            "gpu nvdec": lambda repo: _nvdec_table(PUBLICATION.read(repo)["nvdec"]).markdown(),
        }
    },
    keys={"uploads": KEYS, "ranks": RANK_KEYS, "nvdec": KEYS},
)
