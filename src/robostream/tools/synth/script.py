# SPDX-License-Identifier: Apache-2.0
"""What happens in one episode: the arm picks up an object and puts it into a dish.

Everything random comes from here too: one independent generator per purpose, seed and episode.
"""

from __future__ import annotations

import enum
import itertools
import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from robostream.tools.synth.geometry import GRIPPER_OPEN_M, Floats, above, forward, inverse

COLOURS: dict[str, tuple[int, int, int]] = {
    "red": (196, 52, 44),
    "green": (62, 148, 72),
    "blue": (52, 92, 184),
    "yellow": (214, 176, 52),
    "purple": (126, 72, 160),
    "orange": (216, 116, 40),
}
DISH_COLOURS: dict[str, tuple[int, int, int]] = {
    "white": (214, 212, 206),
    "teal": (64, 140, 144),
    "black": (58, 58, 64),
}
MOVED_KINDS = ("cube", "ball", "cup")
DISHES = {"bowl": "put the {} in the {}", "plate": "place the {} on the {}"}
DOWN = -math.pi / 2
HOME = (0.22, 0.0, 0.20)
HOVER_M = 0.13  # of the finger tips above the table while the hand travels
MIN_GAP_M = 0.03  # between any two objects on the table


# What a generator is for. The numbers, from 1, are part of what a seed means.
RandomStream = enum.IntEnum(
    "RandomStream", "TASKS SCRIPT ROOM NOISE EXPOSURE LENGTH JOLT NOISE_SHIFT"
)


def generator_of(stream: RandomStream, *key: int) -> np.random.Generator:
    """Return the generator for a purpose and a key: the seed, then the episode and so on. Pure."""
    return np.random.default_rng([stream, *key])


@dataclass(frozen=True, slots=True)
class Size:
    """The dimensions of a kind of object."""

    radius_m: float  # of its widest circle; half the edge of a cube
    height_m: float
    floor_m: float = 0.0  # how far above the table its content stands


SIZES = {
    "cube": Size(0.021, 0.042),
    "ball": Size(0.023, 0.046),
    "cup": Size(0.027, 0.058),
    "bowl": Size(0.062, 0.036, floor_m=0.012),
    "plate": Size(0.072, 0.012, floor_m=0.005),
}


@dataclass(frozen=True, slots=True)
class Prop:
    """One object on the table."""

    kind: str
    colour: str

    @property
    def size(self) -> Size:
        """Its dimensions."""
        return SIZES[self.kind]

    @property
    def rgb(self) -> tuple[int, int, int]:
        """Its colour."""
        return (COLOURS | DISH_COLOURS)[self.colour]

    def __str__(self) -> str:
        return f"{self.colour} {self.kind}"


@dataclass(frozen=True, slots=True)
class Task:
    """An object to move and the dish it goes to."""

    moved: Prop
    dish: Prop

    def __str__(self) -> str:
        return DISHES[self.dish.kind].format(self.moved, self.dish)


_MOVED = tuple(itertools.starmap(Prop, itertools.product(MOVED_KINDS, COLOURS)))
_DISHES = tuple(itertools.starmap(Prop, itertools.product(DISHES, DISH_COLOURS)))
ALL_TASKS = tuple(itertools.starmap(Task, itertools.product(_MOVED, _DISHES)))


def choose_tasks(seed: int, count: int) -> tuple[Task, ...]:
    """Return `count` different tasks; fewer tasks of one seed are the first of more. Pure."""
    order = generator_of(RandomStream.TASKS, seed).permutation(len(ALL_TASKS))
    return tuple(ALL_TASKS[i] for i in order[:count])


@dataclass(frozen=True, slots=True)
class Track:
    """Where one object is in every frame of an episode."""

    prop: Prop
    base: Floats  # (frames, 3): the middle of its underside, metres
    turn: Floats  # (frames,): about the vertical, radians


@dataclass(frozen=True, slots=True, eq=False)
class EpisodeScript:
    """Everything that moves in one episode; a pure function of the arguments of `write_script`."""

    seed: int
    episode: int
    task: Task
    joints: npt.NDArray[np.float32]  # (frames, 6), see arm.JOINT_NAMES
    tracks: tuple[Track, ...]  # the moved object, its dish, then bystanders
    placed_frame: int  # the first frame in which the moved object lies in the dish

    @property
    def num_frames(self) -> int:
        """The length of the episode."""
        return len(self.joints)

    @property
    def actions(self) -> npt.NDArray[np.float32]:
        """The joints to reach next: those of the following frame, and at the end the last."""
        return np.concatenate([self.joints[1:], self.joints[-1:]])

    @property
    def rewards(self) -> npt.NDArray[np.float32]:
        """1 for every frame after which the moved object lies in the dish, else 0."""
        return (np.arange(1, self.num_frames + 1) >= self.placed_frame).astype(np.float32)


# The waypoints between which the object moves with the hand.
_GRASPED, _LET_GO = 3, 7


def write_script(seed: int, episode: int, *, num_frames: int, task: Task) -> EpisodeScript:
    """Return the script of one episode. Pure: the randomness comes from (seed, episode) alone."""
    rng = generator_of(RandomStream.SCRIPT, seed, episode)
    others = [prop for prop in _MOVED if prop.colour != task.moved.colour]
    # One or two bystanders, which never move and differ in colour from the moved object.
    chosen = rng.choice(len(others), size=rng.integers(1, 3), replace=False)
    props = (task.moved, task.dish, *(others[i] for i in chosen))
    spots = _scatter(rng, props)
    turn = rng.uniform(-0.6, 0.6)
    arrivals, poses = _plan_path(rng, task, spots, turn)
    joints = _travel(rng, arrivals, poses, num_frames).astype(np.float32)
    frames = np.rint(arrivals / arrivals[-1] * (num_frames - 1)).astype(int).tolist()
    turns = [turn, *[0.0] * (len(props) - 1)]
    moved, *resting = (
        Track(prop, np.tile(spot, (num_frames, 1)), np.full(num_frames, angle))
        for prop, spot, angle in zip(props, spots, turns, strict=True)
    )
    carried = _carried(moved, joints, first=frames[_GRASPED], last=frames[_LET_GO])
    return EpisodeScript(seed, episode, task, joints, (carried, *resting), frames[_LET_GO])


def _scatter(rng: np.random.Generator, props: tuple[Prop, ...]) -> list[Floats]:
    """Return a spot on the table for each object, within reach and apart from the others."""
    spots: list[Floats] = []
    for prop in props:
        while True:
            out, angle = rng.uniform(0.21, 0.36), rng.uniform(-1.05, 1.05)
            spot = np.array([out * math.cos(angle), out * math.sin(angle), 0.0])
            gaps = [
                float(np.linalg.norm(spot - other)) - prop.size.radius_m - neighbour.size.radius_m
                for other, neighbour in zip(spots, props, strict=False)
            ]
            if min(gaps, default=1.0) >= MIN_GAP_M:
                spots.append(spot)
                break
    return spots


def _plan_path(
    rng: np.random.Generator, task: Task, spots: list[Floats], turn: float
) -> tuple[Floats, Floats]:
    """Return when the hand passes its waypoints, and its poses there: x, y, z, pitch, roll, grip.

    The path: home, over the object, grasp, over the dish, let go, home.
    """
    grasp_z = _grasp_height_m(task.moved)
    shut = 2 * (task.moved.size.radius_m - 0.001) / GRIPPER_OPEN_M
    take, drop = spots[0], spots[1] + [*rng.uniform(-0.012, 0.012, 2), 0.0]
    release_z = grasp_z + task.dish.size.floor_m
    # The closing axis follows the object's faces: the roll undoes the turn of the pan.
    roll = math.atan2(take[1], take[0]) - turn
    shares = rng.uniform(0.8, 1.25, 9) * (1.5, 1.0, 0.4, 0.8, 1.6, 0.8, 0.4, 0.7, 1.2)
    home = (HOME[0] + rng.uniform(-0.03, 0.03), rng.uniform(-0.06, 0.06), HOME[2])
    over = HOVER_M + rng.uniform(-0.01, 0.03)
    poses = [
        (*home, -1.0, 0.0, 0.35),
        (take[0], take[1], over, DOWN, roll, 1.0),
        (take[0], take[1], grasp_z, DOWN, roll, 1.0),
        (take[0], take[1], grasp_z, DOWN, roll, shut),
        (take[0], take[1], over, DOWN, roll, shut),
        (drop[0], drop[1], over, DOWN, 0.0, shut),
        (drop[0], drop[1], release_z, DOWN, 0.0, shut),
        (drop[0], drop[1], release_z, DOWN, 0.0, min(1.0, shut + 0.35)),
        (drop[0], drop[1], over, DOWN, 0.0, 0.8),
        (*home, -1.0, 0.0, 0.35),
    ]
    return np.cumsum([0.0, *shares]), np.array(poses)


def _travel(rng: np.random.Generator, arrivals: Floats, poses: Floats, num_frames: int) -> Floats:
    """Return the joints of every frame: minimum-jerk moves from pose to pose."""
    now = np.linspace(0.0, arrivals[-1], num_frames)
    leg = np.clip(np.searchsorted(arrivals, now, side="right") - 1, 0, len(poses) - 2)
    done = (now - arrivals[leg]) / (arrivals[leg + 1] - arrivals[leg])
    eased = (done**3 * (10 - 15 * done + 6 * done**2))[:, None]
    path = poses[leg] + eased * (poses[leg + 1] - poses[leg])
    # A hand guided by a person never moves dead straight; the sway fades near the table.
    phase, rate = rng.uniform(0, 2 * math.pi, 3), rng.uniform(4.0, 9.0, 3)
    sway = 0.004 * np.sin(now[:, None] * rate + phase)
    path[:, :3] += sway * np.clip((path[:, 2:3] - 0.06) / 0.06, 0.0, 1.0)
    return inverse(path[:, :3], pitch=path[:, 3], roll=path[:, 4], grip=path[:, 5])


def _carried(track: Track, joints: npt.NDArray[np.float32], *, first: int, last: int) -> Track:
    """Return the track of an object that moves with the hand from a first to a last frame."""
    pose = forward(joints)
    frame = np.arange(len(joints))
    with_hand = np.clip(frame, first, last)
    heading = np.arctan2(-pose.closing[:, 0], pose.closing[:, 1])
    base = above(pose.tip[with_hand], -_grasp_height_m(track.prop))
    turn = track.turn + heading[with_hand] - heading[first]
    return Track(track.prop, np.where(frame[:, None] < first, track.base, base), turn)


def _grasp_height_m(prop: Prop) -> float:
    """Return the height above its underside at which the finger tips grasp an object."""
    return 0.55 * prop.size.height_m
