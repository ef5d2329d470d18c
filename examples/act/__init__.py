# SPDX-License-Identifier: Apache-2.0
"""ACT (action chunking with transformers) in plain torch.

config.py     ActConfig: sizes of the networks; Interface: what a dataset asks for
normalise.py  mean 0, standard deviation 1, by the dataset's statistics
resnet.py     ResNet-18 without its head
policy.py     ActPolicy: the loss while training, chunks of actions later
learn.py      a program that shows that it learns
"""

from examples.act.config import ActConfig, Interface, interface_of
from examples.act.policy import ActPolicy, Batch

__all__ = ["ActConfig", "ActPolicy", "Batch", "Interface", "interface_of"]
