# SPDX-License-Identifier: Apache-2.0
"""The drawn robot does what its joints say, and the same seed draws the same pixels."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import subprocess
import sys
from pathlib import Path

import av
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robostream import config
from robostream.tools.synth.geometry import CAMERA_NAMES, forward, inverse
from robostream.tools.synth.objects import bones
from robostream.tools.synth.script import ALL_TASKS, EpisodeScript, choose_tasks, write_script
from robostream.tools.synth.view import View, camera_at, open_view, render, render_depth
from robostream.write import normal_thread_priority
from tests.parameters import examples

REPO = Path(__file__).parents[3]
SEEDS = st.integers(0, 2**31)


def script_for(seed: int, episode: int, num_frames: int = 240) -> EpisodeScript:
    task = choose_tasks(seed, len(ALL_TASKS))[episode % len(ALL_TASKS)]
    return write_script(seed, episode, num_frames=num_frames, task=task)


def view_of(script: EpisodeScript, camera: str, size: int = 256) -> View:
    return open_view(script, camera, width=size, height=size)


def digest(seed: int, episode: int) -> str:
    """A digest of a few images of every camera, depth too."""
    script = script_for(seed, episode, 50)
    found = hashlib.sha256(script.joints.tobytes())
    for name in CAMERA_NAMES:
        view = view_of(script, name, 96)
        for frame in (0, 20, 41):
            found.update(render(view, frame).tobytes())
    found.update(render_depth(view_of(script, "front", 96), 20).tobytes())
    return found.hexdigest()


@given(
    out=st.floats(0.2, 0.36),
    pan=st.floats(-1.2, 1.2),
    up=st.floats(0.0, 0.16),
    roll=st.floats(-1, 1),
)
def test_inverse_kinematics_undo_forward_kinematics(
    out: float, pan: float, up: float, roll: float
) -> None:
    """The joints found for a point within reach bring the tip there, hand down."""
    tip = np.array([out * np.cos(pan), out * np.sin(pan), up])
    down = np.array(-np.pi / 2)
    pose = forward(inverse(tip, pitch=down, roll=np.array(roll), grip=np.array(0.5)))

    assert pose.tip == pytest.approx(tip, abs=1e-9)
    assert pose.approach == pytest.approx([0.0, 0.0, -1.0], abs=1e-9)


@pytest.mark.parametrize("camera", ["front", "wrist", "left"])
def test_the_fingers_are_where_the_joints_put_them(camera: str) -> None:
    """The pixels that change with the fingers' colour lie on the fingers of forward kinematics."""
    script = script_for(0, 3)
    view = view_of(script, camera)
    other = dataclasses.replace(view.livery, finger=(40.0, 40.0, 240.0))
    repainted = dataclasses.replace(view, livery=other)
    seen = 0
    for frame in range(0, script.num_frames, 12):
        changed = (render(view, frame) != render(repainted, frame)).any(-1)
        fingers = bones(forward(script.joints[frame]), view.livery)[-2:]
        ends = camera_at(view, frame).project(np.array([[f.start, f.end] for f in fingers]))
        radii_px = camera_at(view, frame).focal_px * fingers[0].start_m / ends[..., 2].min()
        rows, columns = np.nonzero(changed)
        distance = np.min([distance_to(columns + 0.5, rows + 0.5, end) for end in ends], axis=0)
        seen += changed.any()

        assert (distance <= radii_px + 1).all()
    assert seen >= 15


def distance_to(
    x: npt.NDArray[np.float64], y: npt.NDArray[np.float64], ends: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Return how far points are from a line between two ends."""
    (ax, ay, _), (bx, by, _) = ends
    along = ((x - ax) * (bx - ax) + (y - ay) * (by - ay)) / ((bx - ax) ** 2 + (by - ay) ** 2)
    along = np.clip(along, 0, 1)
    return np.hypot(x - ax - along * (bx - ax), y - ay - along * (by - ay))


@examples(25)
@given(seed=SEEDS, episode=st.integers(0, 10_000), num_frames=st.integers(120, 400))
def test_the_arm_carries_the_thing_to_the_dish(seed: int, episode: int, num_frames: int) -> None:
    """The thing rests, goes with the hand, and at the end lies within its dish."""
    script = script_for(seed, episode, num_frames)
    thing, dish = script.tracks[:2]
    pose = forward(script.joints)
    moved = np.abs(np.diff(thing.base, axis=0)).max(1) > 1e-4
    to_hand = np.linalg.norm(pose.tip - thing.base, axis=1)[1:][moved]
    offset = np.linalg.norm((thing.base - dish.base)[-1, :2])

    assert moved.any()
    assert np.ptp(to_hand) < 0.02
    assert offset < dish.prop.size.radius_m - thing.prop.size.radius_m
    assert str(thing.prop) in str(script.task)
    assert str(dish.prop) in str(script.task)
    assert script.rewards.tolist() == [
        float(f + 1 >= script.placed_frame) for f in range(num_frames)
    ]
    assert script.rewards[-1] == 1


@examples(25)
@given(seed=SEEDS, episode=st.integers(0, 10_000), num_frames=st.integers(2, 400))
def test_actions_are_the_joints_of_the_next_frame(seed: int, episode: int, num_frames: int) -> None:
    """An action is where the arm is one frame later; at the end it stays."""
    script = script_for(seed, episode, num_frames)

    assert script.joints.shape == (num_frames, 6)
    assert np.isfinite(script.joints).all()
    assert np.array_equal(script.actions[:-1], script.joints[1:])
    assert np.array_equal(script.actions[-1], script.joints[-1])


@examples(25)
@given(seed=SEEDS, episode=st.integers(0, 10_000))
def test_the_arm_moves_smoothly(seed: int, episode: int) -> None:
    """No joint turns by more than a fifth of a radian from one frame to the next."""
    steps = np.abs(np.diff(script_for(seed, episode, 200).joints[:, :5], axis=0))

    assert steps.max() < 0.2


@examples(12)
@given(
    width=st.integers(16, 320).map(lambda n: 2 * n),
    height=st.integers(16, 240).map(lambda n: 2 * n),
    camera=st.sampled_from(CAMERA_NAMES),
    frame=st.integers(0, 19),
)
def test_images_of_any_size_have_their_shape(
    width: int, height: int, camera: str, frame: int
) -> None:
    """An image is (height, width, 3) bytes with something to see on it."""
    view = open_view(script_for(1, 2, 20), camera, width=width, height=height)
    image = render(view, frame)

    assert image.shape == (height, width, 3)
    assert image.dtype == np.uint8
    assert image.std() > 10


@pytest.mark.long
def test_the_same_seed_draws_the_same_pixels_in_another_process() -> None:
    """Images depend on (seed, episode) alone: not on the process, nor on what was drawn before."""
    code = "from tests.tools.synth.test_scene import digest; print(digest(7, 3), digest(7, 4))"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=REPO, capture_output=True, text=True, check=True)
    other = done.stdout.split()

    assert [digest(7, 4), digest(7, 3)] == other[::-1]
    assert len({*other, digest(8, 3)}) == 3


def test_only_the_wrist_camera_moves() -> None:
    """The wrist camera goes with the hand; the others stay put through an episode."""
    script = script_for(0, 0)
    moved = {
        name: np.linalg.norm(camera_at(view, 100).eye - camera_at(view, 0).eye)
        for name in CAMERA_NAMES
        if (view := view_of(script, name, 32))
    }

    assert moved.pop("wrist") > 0.05
    assert set(moved.values()) == {0.0}


def test_the_sensor_is_a_little_noisy() -> None:
    """Where nothing moves, two images differ by a few levels, and never by many."""
    view = view_of(script_for(0, 0), "front")
    wall = [render(view, frame)[:60, :60].astype(int) for frame in (0, 1)]
    difference = wall[1] - wall[0]

    assert 1.0 < difference.std() < 6.0
    assert np.abs(difference).max() <= 16


def test_depth_agrees_with_the_geometry() -> None:
    """Depth is that of the fingers where they are seen, and of the table beside them."""
    script = script_for(0, 3)
    view = view_of(script, "front")
    frame = 60
    camera = camera_at(view, frame)
    depth = render_depth(view, frame)
    finger = bones(forward(script.joints[frame]), view.livery)[-1]
    column, row, finger_m = camera.project((finger.start + finger.end) / 2)
    table_column, table_row, table_m = camera.project(np.array([0.05, -0.4, 0.0]))

    assert depth.shape == (256, 256)
    assert depth.dtype == np.float32
    assert depth[int(row), int(column)] == pytest.approx(finger_m, abs=0.03)
    assert depth[int(table_row), int(table_column)] == pytest.approx(table_m, abs=0.01)
    assert 0.3 < depth.min() < depth.max() < 5.0


def test_the_wrist_has_no_depth_camera() -> None:
    """Depth of the camera on the wrist is refused."""
    view = view_of(script_for(0, 0), "wrist", 32)

    with pytest.raises(ValueError, match="fixed camera"):
        render_depth(view, 0)


@given(seed=SEEDS, count=st.integers(1, len(ALL_TASKS)))
def test_tasks_differ_and_fewer_are_the_first_of_more(seed: int, count: int) -> None:
    """No task is chosen twice, and asking for more keeps those there were."""
    tasks = choose_tasks(seed, count)

    assert len({str(task) for task in tasks}) == count
    assert tasks == choose_tasks(seed, len(ALL_TASKS))[:count]


@pytest.mark.parametrize("camera", ["front", "wrist", "top"])
def test_bitrates_are_those_of_real_cameras(camera: str) -> None:
    """At 256x256 and 20 fps, AV1 with LeRobot's options takes 150 to 600 kbit/s."""
    view = view_of(script_for(1, 1), camera)
    rate = kbit_per_s([render(view, frame) for frame in range(80, 120)], fps=20)

    assert 150 < rate < 600


def kbit_per_s(images: list[npt.NDArray[np.uint8]], *, fps: int) -> float:
    """Return the bitrate of images as AV1 with a key frame every 2 frames."""
    config.quiet_encoders()
    options = {"g": "2", "crf": "30", "preset": "12"}
    with normal_thread_priority(), av.open(io.BytesIO(), "w", format="mp4") as container:
        stream = container.add_stream("libsvtav1", rate=fps, options=options)
        stream.width, stream.height, stream.pix_fmt = (
            images[0].shape[1],
            images[0].shape[0],
            "yuv420p",
        )
        frames = [av.VideoFrame.from_ndarray(image, format="rgb24") for image in images]
        packets = [packet for frame in [*frames, None] for packet in stream.encode(frame)]
        for packet in packets:
            container.mux(packet)
    return sum(packet.size for packet in packets) * 8 * fps / len(images) / 1000
