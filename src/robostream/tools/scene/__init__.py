# SPDX-License-Identifier: Apache-2.0
"""A robot arm at a table, drawn with numpy alone.

seed, episode -> EpisodeScript (what happens) -> View (one camera) -> images, frame by frame.
"""

from robostream.tools.scene.arm import JOINT_NAMES
from robostream.tools.scene.chance import Stream, chance
from robostream.tools.scene.optics import CAMERA_NAMES, DEPTH_CAMERA_NAME
from robostream.tools.scene.props import ALL_TASKS, Task, choose_tasks
from robostream.tools.scene.script import EpisodeScript, write_script
from robostream.tools.scene.view import View, camera_at, open_view, render, render_depth

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
