# SPDX-License-Identifier: Apache-2.0
"""Arguments and calls that robostream warns of or refuses, and how transforms reach workers."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from multiprocessing.context import get_spawning_popen
from typing import Any, NoReturn

import cloudpickle

from robostream import arguments
from robostream.assemble import ImageTransforms
from robostream.errors import SelectionError

_IGNORED = {
    "buffer_size": "frames are mixed over episode_pool_size episodes, with no buffer of samples",
    "rng": "the order is a function of seed and epoch",
    "max_num_shards": "the stream is not made of shards",
    "video_prefetch_workers": "num_workers of StreamingDataLoader says how many processes decode",
    "prefetch_videos": "worker processes always work ahead, by prefetch_factor batches",
    "decode_threads": "num_workers of StreamingDataLoader says how many processes decode, each "
    "with one thread",
    "multiprocessing_context": "workers are fresh interpreters, whatever the context",
}
_STREAM_LEGACY = {"streaming", *_IGNORED} - {"multiprocessing_context"}
# The arguments after force_cache_sync in the constructor of LeRobot's streaming dataset.
_LEROBOT_ORDER = (
    "streaming",
    "episode_pool_size",
    "buffer_size",
    "max_num_shards",
    "seed",
    "rng",
    "shuffle",
    "return_uint8",
    "rank",
    "world_size",
    "video_decoder_cache_size",
    "data_files_root",
    "video_decode_device",
    "prefetch_videos",
    "video_prefetch_workers",
)


def warn_of_ignored(name: str, value: object, stacklevel: int = 3) -> None:
    """Warn that robostream ignores an argument, unless its value is None."""
    if value is not None:
        text = f"{name} is ignored: {_IGNORED[name]}"
        warnings.warn(text, DeprecationWarning, stacklevel=stacklevel)


def accept_legacy(given: Mapping[str, Any]) -> None:
    """Warn of each argument of another loader that has no effect here; refuse unknown names."""
    if not arguments.truth(given.get("streaming", True), "streaming"):
        raise SelectionError(
            "streaming=False: StreamingLeRobotDataset always streams; use LeRobotDataset for "
            "random access"
        )
    for name, value in given.items():
        if name not in _STREAM_LEGACY:
            raise TypeError(
                f"StreamingLeRobotDataset() got an unexpected keyword argument {name!r}"
            )
        if name != "streaming":
            warn_of_ignored(name, value, stacklevel=4)


def refuse_positions(values: tuple[Any, ...]) -> None:
    """Raise TypeError, with the names, for keyword arguments given by position."""
    if values:
        names = ", ".join(f"{name}=" for name in _LEROBOT_ORDER[: len(values)])
        raise TypeError(
            f"StreamingLeRobotDataset() takes the arguments after force_cache_sync by name. In "
            f"LeRobot's order the values given here are {names}"
        )


def refuse_samples(samples: object) -> NoReturn:
    """Raise SelectionError: the `collate_fn` of a StreamingDataLoader, which collates nothing.

    It runs if a program makes a plain DataLoader from a StreamingDataLoader's attributes, as
    `accelerate.skip_first_batches` does. The batches would be different ones.
    """
    raise SelectionError(
        "accelerate.skip_first_batches(), or another program, made a plain DataLoader from a "
        "StreamingDataLoader. It would deliver other batches, and it has no state. Call "
        'loader.load_state_dict({"batches_consumed": n, "batch_size": b}), or load a saved state, '
        "and iterate over the loader itself. With transformers.Trainer, set ignore_data_skip=True."
    )


def refuse_copy() -> NoReturn:
    """Raise SelectionError for a copy of an iterator."""
    raise SelectionError(
        "an iterator cannot be copied or pickled: both would deliver from the same batches. Copy "
        "the loader or the stream, which keeps its position, and call iter() on the copy."
    )


class _ByValue:
    """Unpickles as the value itself."""

    def __init__(self, value: Any, transforms: ImageTransforms) -> None:
        self._value, self._transforms = value, transforms

    def __reduce__(self) -> tuple[Callable[[bytes], Any], tuple[bytes]]:
        try:
            return cloudpickle.loads, (cloudpickle.dumps(self._value),)
        except Exception as error:  # a user's object may raise anything here
            raise cannot_be_sent(self._transforms, error) from error


def for_pickle(state: dict[str, Any], transforms: ImageTransforms | None) -> Any:
    """Return the state of a dataset in the form to pickle.

    A plain DataLoader pickles its dataset for the workers that it spawns. Pickle sends only the
    name of a function, which a worker cannot find if a script or a notebook defines it. So a state
    with transforms travels by cloudpickle, which sends the function itself.
    """
    if transforms is None or get_spawning_popen() is None:
        return state
    return _ByValue(state, transforms)


def cannot_be_sent(transforms: ImageTransforms, error: Exception) -> SelectionError:
    """Return the error to raise if transforms cannot be pickled."""
    return SelectionError(
        f"image_transforms={transforms!r} cannot be sent to worker processes: "
        f"{type(error).__name__}: {error}. Create what cannot be copied in the first call, put the "
        "transform into a module as a function, or use num_workers=0."
    )
