# SPDX-License-Identifier: Apache-2.0
"""Programs that train with robostream (docs/training.md, docs/tutorials).

synthetic.py      synthetic datasets
tutorials/        the short programs of docs/tutorials
recipes/          the short programs of docs/recipes: other training loops
act/              ACT, a policy for robot arms, in plain PyTorch; a program that shows it learns
scaling/          training on any number of processes, with exact resume after a kill
"""
