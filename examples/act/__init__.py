# SPDX-License-Identifier: Apache-2.0
"""ACT (action chunking with transformers) in plain PyTorch.

config.py     ActConfig: sizes of the networks; Interface: cameras and vector sizes of a dataset
normalise.py  normalisation with the dataset's statistics
resnet.py     ResNet-18 without its head
policy.py     ActPolicy: the training loss, and predicted action chunks
learn.py      a program that shows that it learns
"""

from examples.act.config import ActConfig, Interface, interface_of
from examples.act.policy import SAMPLE_LOSSES, ActPolicy, Batch

__all__ = ["SAMPLE_LOSSES", "ActConfig", "ActPolicy", "Batch", "Interface", "interface_of"]
