# SPDX-License-Identifier: Apache-2.0
"""Programs that train with robostream (docs/training.md, docs/tutorials).

synthetic.py      synthetic datasets
tutorials/        the short programs of docs/tutorials
act/              ACT, a policy for robot arms, in plain PyTorch; a program that shows it learns
scaling/          training on any number of processes, with exact resume after a kill
lerobot_train.py  LeRobot's own training command with robostream's data loading
"""
