# SPDX-License-Identifier: Apache-2.0
"""A robot arm at a table, drawn with numpy alone.

chance.py   everything random: one stream per purpose, seed and episode
arm.py      the arm's geometry: joint angles to points in space, and back
props.py    the things on the table, and the tasks about them
script.py   EpisodeScript: what happens in one episode
optics.py   where cameras stand, and how space maps to their pixels
layers.py   smooth-edged shapes, and how they are painted
noise.py    sensor noise
texture.py  what the room is made of
room.py     what cameras see of the room without the robot
vessel.py   upright round things and their shadows, as layers
robot.py    the robot as layers
things.py   the things on the table as layers
view.py     View: what one camera sees of one episode, frame by frame
"""

from robostream.tools.synth.scene.arm import JOINT_NAMES
from robostream.tools.synth.scene.chance import Stream, chance
from robostream.tools.synth.scene.optics import CAMERA_NAMES, DEPTH_CAMERA_NAME
from robostream.tools.synth.scene.props import ALL_TASKS, Task, choose_tasks
from robostream.tools.synth.scene.script import EpisodeScript, write_script
from robostream.tools.synth.scene.view import View, camera_at, open_view, render, render_depth

__all__ = [
    "ALL_TASKS",
    "CAMERA_NAMES",
    "DEPTH_CAMERA_NAME",
    "JOINT_NAMES",
    "EpisodeScript",
    "Stream",
    "Task",
    "View",
    "camera_at",
    "chance",
    "choose_tasks",
    "open_view",
    "render",
    "render_depth",
    "write_script",
]
