# SPDX-License-Identifier: Apache-2.0
"""Programs that train with robostream, and the parts they are made of (docs/training.md).

act/      ACT, a policy for robot arms, in plain torch, and a program that shows that it learns
lerobot_train.py  LeRobot's own training command, fed by robostream
scaling/  training on any number of processes, killed and resumed exactly
"""
