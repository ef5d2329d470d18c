# SPDX-License-Identifier: Apache-2.0
"""The things on the table: what they are, what they are called, how big they are."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from robostream.tools.synth.scene.arm import Floats
from robostream.tools.synth.scene.chance import Stream, chance

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


@dataclass(frozen=True, slots=True)
class Size:
    """The measures of a kind of thing."""

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
    """One thing on the table."""

    kind: str
    colour: str

    @property
    def size(self) -> Size:
        """Its measures."""
        return SIZES[self.kind]

    @property
    def rgb(self) -> tuple[int, int, int]:
        """Its colour."""
        return (COLOURS | DISH_COLOURS)[self.colour]

    def __str__(self) -> str:
        return f"{self.colour} {self.kind}"


@dataclass(frozen=True, slots=True)
class Task:
    """A thing to move and the dish it goes to."""

    moved: Prop
    dish: Prop

    def __str__(self) -> str:
        return DISHES[self.dish.kind].format(self.moved, self.dish)


ALL_TASKS = tuple(
    Task(Prop(kind, colour), Prop(dish, dish_colour))
    for kind, colour, dish, dish_colour in itertools.product(
        MOVED_KINDS, COLOURS, DISHES, DISH_COLOURS
    )
)


def choose_tasks(seed: int, count: int) -> tuple[Task, ...]:
    """Return `count` different tasks; fewer tasks of one seed are the first of more. Pure."""
    order = chance(Stream.TASKS, seed).permutation(len(ALL_TASKS))
    return tuple(ALL_TASKS[i] for i in order[:count])


@dataclass(frozen=True, slots=True)
class Track:
    """Where one thing is in every frame of an episode."""

    prop: Prop
    base: Floats  # (frames, 3): the middle of its underside, metres
    turn: Floats  # (frames,): about the vertical, radians
