# SPDX-License-Identifier: Apache-2.0
"""Synthetic episodes of a robot arm at a table, drawn with numpy alone.

recording.py  SynthSpec and make_dataset: its episodes recorded by several processes
script.py     EpisodeScript: the objects, the task and every movement of one episode
arm.py        the arm's geometry: joint angles to points in space, and back
camera.py     pinhole cameras
room.py       the room's textures, and what cameras see of it without the robot
objects.py    the robot and the objects on the table, with their shadows, as layers
view.py       View: what one camera sees of one episode, frame by frame, and its noise
"""
