# SPDX-License-Identifier: Apache-2.0
"""Programs that train with robostream, and the parts they are made of (docs/training.md).

synthetic.py      datasets to try things on
act/              ACT, a policy for robot arms, in plain torch; a program that shows that it learns
scaling/          training on any number of processes, killed and resumed exactly
lerobot_train.py  LeRobot's own training command, fed by robostream
"""
