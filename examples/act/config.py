# SPDX-License-Identifier: Apache-2.0
"""The sizes of an ACT policy, and of its inputs and outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ActConfig:
    """The sizes of the networks; the defaults are those of the paper (arXiv 2304.13705).

    Attributes:
        chunk: Actions predicted at once.
        width: Size of a token in all transformers.
        heads: Attention heads per layer.
        feedforward: Hidden size of the transformers' feed-forward layers.
        encoder_layers: Layers of the CVAE's encoder, and of the policy's encoder.
        decoder_layers: Layers of the policy's decoder.
        latent: Size of the latent, which selects one of several ways to do the task.
        kl_weight: Weight of the KL term of the loss.
        dropout: Dropout rate of the transformers.
        backbone_width: Channels of the first stage of the ResNet-18; 64 is the original.
        image_side_px: Height and width to scale images to before the ResNet; 0 keeps their size.
    """

    chunk: int = 100
    width: int = 512
    heads: int = 8
    feedforward: int = 3200
    encoder_layers: int = 4
    decoder_layers: int = 1
    latent: int = 32
    kl_weight: float = 10.0
    dropout: float = 0.1
    backbone_width: int = 64
    image_side_px: int = 0

    def __post_init__(self) -> None:
        if self.width % self.heads or self.width % 4:
            raise ValueError(
                f"want a width divisible by the {self.heads} heads and by 4 (the parts of a "
                f"position encoding), got width={self.width}"
            )


@dataclass(frozen=True, slots=True)
class Interface:
    """The cameras of a policy, and the sizes of `observation.state` and `action`."""

    cameras: tuple[str, ...]
    state_size: int
    action_size: int


def interface_of(features: Mapping[str, Mapping[str, Any]], cameras: list[str]) -> Interface:
    """Return the interface of a policy for a dataset. Pure."""
    missing = [key for key in ("observation.state", "action") if key not in features]
    if missing or not cameras:
        raise ValueError(
            "want a dataset with observation.state, action and a camera for ACT, got the features "
            f"{sorted(features)}"
        )
    state, action = features["observation.state"]["shape"], features["action"]["shape"]
    return Interface(tuple(cameras), int(state[0]), int(action[0]))
