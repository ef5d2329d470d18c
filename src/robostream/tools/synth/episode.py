# SPDX-License-Identifier: Apache-2.0
"""One synthetic episode: what happens in it, and its frames. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from robostream.tools.synth.scene import (
    DEPTH_CAMERA_NAME,
    EpisodeScript,
    Stream,
    chance,
    choose_tasks,
    open_view,
    render,
    render_depth,
    write_script,
)
from robostream.tools.synth.spec import SynthSpec

DEPTH_KEY = f"observation.images.{DEPTH_CAMERA_NAME}_depth"


def script_of(spec: SynthSpec, episode: int) -> EpisodeScript:
    """Return what happens in one episode. Pure."""
    number = spec.original(episode)
    task = choose_tasks(spec.seed, spec.tasks)[number % spec.tasks]
    num_frames = length_of(spec, episode)
    return write_script(spec.seed, number, num_frames=num_frames, task=task)


def length_of(spec: SynthSpec, episode: int) -> int:
    """Return the number of frames of one episode. Pure."""
    rng = chance(Stream.LENGTH, spec.seed, spec.original(episode))
    return int(rng.integers(spec.min_frames, spec.max_frames, endpoint=True))


def frames_of(spec: SynthSpec, script: EpisodeScript) -> Iterator[dict[str, Any]]:
    """Yield the frames of an episode as the writer takes them. Pure."""
    size = {"width": spec.width, "height": spec.height}
    views = {image_key(name): open_view(script, name, **size) for name in spec.camera_names}
    depth_view = open_view(script, DEPTH_CAMERA_NAME, **size) if spec.depth else None
    actions, rewards = script.actions, script.rewards
    for frame in range(script.num_frames):
        images: dict[str, Any] = {key: render(view, frame) for key, view in views.items()}
        if depth_view is not None:
            images[DEPTH_KEY] = render_depth(depth_view, frame)[..., None]
        yield {
            "observation.state": script.joints[frame],
            "action": actions[frame],
            "next.reward": rewards[frame : frame + 1],
            "next.done": np.array([frame == script.num_frames - 1]),
            "task": str(script.task),
            **images,
        }


def image_key(camera_name: str) -> str:
    """Return the feature of a camera."""
    return f"observation.images.{camera_name}"
