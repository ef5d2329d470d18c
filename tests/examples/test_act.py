# SPDX-License-Identifier: Apache-2.0
"""ACT: what its parts promise."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from examples.act import ActConfig, ActPolicy, Interface, interface_of
from examples.act.normalise import Scale
from examples.act.resnet import resnet18

SIZES = ActConfig(chunk=4, width=16, heads=2, feedforward=16, encoder_layers=1, backbone_width=4)
SHAPES = Interface(("one", "two"), state_size=3, action_size=2)


@pytest.fixture
def policy() -> ActPolicy:
    torch.manual_seed(0)
    return ActPolicy(SIZES, SHAPES).eval()


@pytest.fixture
def batch() -> dict[str, Any]:
    drawn = torch.Generator().manual_seed(1)
    images = torch.randint(0, 256, (2, 6, 3, 40, 48), dtype=torch.uint8, generator=drawn)
    return {
        "observation.state": torch.randn(6, 3, generator=drawn),
        "action": torch.randn(6, 4, 2, generator=drawn),
        "action_is_pad": torch.zeros(6, 4, dtype=torch.bool),
        "one": images[0],
        "two": images[1],
    }


def test_the_backbone_is_a_resnet_18() -> None:
    """As many parameters as the original without its head; 1/32 of the image resolution."""
    backbone = resnet18(64)

    assert sum(parameter.numel() for parameter in backbone.parameters()) == 11_176_512
    assert backbone(torch.zeros(1, 3, 96, 64)).shape == (1, 512, 3, 2)


def test_actions_after_an_episodes_end_do_not_count(
    policy: ActPolicy, batch: dict[str, Any]
) -> None:
    """Whatever stands in padded places, the losses are the same."""
    batch["action_is_pad"][:, 2:] = True
    losses = []
    for filler in (0.0, 1e3):
        batch["action"][:, 2:] = filler
        torch.manual_seed(2)
        losses.append(policy(batch))

    assert all(torch.equal(losses[0][name], losses[1][name]) for name in losses[0] | losses[1])


def test_a_batch_may_be_cut_anywhere(policy: ActPolicy, batch: dict[str, Any]) -> None:
    """What is predicted for a sample does not depend on the others of its process."""
    whole = policy.predict(batch)
    parts = [
        policy.predict({key: value[cut] for key, value in batch.items()})
        for cut in (slice(0, 1), slice(1, 6))
    ]

    assert whole.shape == (6, 4, 2)
    torch.testing.assert_close(torch.cat(parts), whole)


def test_images_may_be_uint8_or_float(policy: ActPolicy, batch: dict[str, Any]) -> None:
    """uint8 and float32 in [0, 1] are the same images."""
    shares = batch | {key: batch[key].float() / 255 for key in ("one", "two")}

    torch.testing.assert_close(policy.predict(shares), policy.predict(batch))


def test_the_policy_uses_every_image(policy: ActPolicy, batch: dict[str, Any]) -> None:
    """Each camera changes the prediction, and so does the position of an object in the image."""
    for key in ("one", "two"):
        turned = policy.predict(batch | {key: batch[key].flip(-1)})
        assert not torch.allclose(turned, policy.predict(batch))


def test_scales_are_the_datasets_and_can_be_undone() -> None:
    """Mean 0, deviation 1; a joint that never moved is not blown up."""
    stats = {"action": {"mean": [1.0, 2.0], "std": [0.5, 0.0]}}
    scale = Scale(2)
    scale.learn("action", stats)
    values = torch.tensor([[1.5, 2.0], [0.0, 2.0]])

    assert scale(values).tolist() == [[1.0, 0.0], [-2.0, 0.0]]
    torch.testing.assert_close(scale.undo(scale(values)), values)


def test_what_a_dataset_lacks_is_named() -> None:
    """No statistics, no state: the error says what is missing."""
    with pytest.raises(ValueError, match=r"mean and std of action .* found nothing"):
        Scale(2).learn("action", None)
    with pytest.raises(ValueError, match=r"observation\.state, action and a camera"):
        interface_of({"action": {"shape": (2,)}}, ["one"])
    with pytest.raises(ValueError, match="width=18"):
        ActConfig(width=18, heads=2)
