# SPDX-License-Identifier: Apache-2.0
"""The sizes of an ACT policy, and the shapes of what it sees and does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ActConfig:
    """The sizes of the networks; the defaults are those of the paper (arXiv 2304.13705).

    Attributes:
        chunk: Actions predicted at once.
        width: Of the tokens of all transformers.
        heads: Of each attention.
        feedforward: Width inside the transformers' feed-forward parts.
        encoder_layers: Of the CVAE's encoder, and of the policy's.
        decoder_layers: Of the policy's decoder.
        latent: Numbers that say in which of several possible ways the task is done.
        kl_weight: Weight of the KL term of the loss.
        dropout: In the transformers.
        backbone_width: Channels of the first stage of the ResNet-18; 64 is the original.
        image_side_px: Pictures are scaled to this before the ResNet; 0 leaves them as they are.
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
                f"want a width that {self.heads} heads and the 4 parts of a position in a picture "
                f"divide, got width={self.width}"
            )


@dataclass(frozen=True, slots=True)
class Interface:
    """What goes into a policy and what comes out.

    Attributes:
        cameras: Keys of the cameras.
        state_size: Numbers of `observation.state`.
        action_size: Numbers of an action.
    """

    cameras: tuple[str, ...]
    state_size: int
    action_size: int


def interface_of(features: Mapping[str, Mapping[str, Any]], cameras: list[str]) -> Interface:
    """Return the interface a dataset's features ask for. Pure."""
    missing = [key for key in ("observation.state", "action") if key not in features]
    if missing or not cameras:
        raise ValueError(
            "want a dataset with observation.state, action and a camera for ACT, got the features "
            f"{sorted(features)}"
        )
    state, action = features["observation.state"]["shape"], features["action"]["shape"]
    return Interface(tuple(cameras), int(state[0]), int(action[0]))
