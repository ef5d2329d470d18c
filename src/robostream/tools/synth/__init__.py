# SPDX-License-Identifier: Apache-2.0
"""Synthetic episodes of a robot arm at a table, drawn with numpy alone.

recording.py  SynthSpec and make_dataset: its episodes recorded by several processes
script.py     EpisodeScript: the objects, the task and every movement of one episode
geometry.py   the arm: joint angles to points in space, and back; pinhole cameras
objects.py    the robot and the objects on the table, with their shadows, as layers
view.py       the room, and View: what one camera sees of one episode, frame by frame
"""
