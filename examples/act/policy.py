# SPDX-License-Identifier: Apache-2.0
"""ACT: a policy that predicts a chunk of actions from one observation.

During training, the encoder of a CVAE sees the true actions and compresses into a small latent what
the images do not show: which of several possible ways the demonstration took. The policy predicts
the chunk from the latent, the state and the images. At inference the latent is 0, its prior mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from examples.act.config import ActConfig, Interface
from examples.act.normalise import Scale
from examples.act.resnet import resnet18

Batch = Mapping[str, Any]
SAMPLE_LOSSES = "loss of each sample"
"""The entry of the losses that is not a mean over the batch."""


class ActPolicy(nn.Module):
    """Predicts the next `config.chunk` actions from a state and one image per camera."""

    def __init__(self, config: ActConfig, interface: Interface) -> None:
        super().__init__()
        self.config, self.interface = config, interface
        width = config.width
        self.state_scale = Scale(interface.state_size)
        self.action_scale = Scale(interface.action_size)
        self.camera_scales = nn.ModuleList(Scale(3, 1, 1) for _ in interface.cameras)

        self.posterior = Posterior(config, interface)
        self.eyes = nn.ModuleList(resnet18(config.backbone_width) for _ in interface.cameras)
        self.from_eyes = nn.Conv2d(8 * config.backbone_width, width, 1)
        self.from_state = nn.Linear(interface.state_size, width)
        self.from_latent = nn.Linear(config.latent, width)
        self.places = nn.Parameter(torch.randn(2 + len(interface.cameras), width) * 0.02)
        self.encoder = _encoder(config)
        self.queries = nn.Parameter(torch.randn(config.chunk, width) * 0.02)
        layer = nn.TransformerDecoderLayer(width, **_layer_sizes(config))
        self.decoder = nn.TransformerDecoder(layer, config.decoder_layers, nn.LayerNorm(width))
        self.to_action = nn.Linear(width, interface.action_size)

    def learn_scales(self, stats: Mapping[str, Mapping[str, Any]] | None) -> None:
        """Set the normalisation from a dataset's statistics, `meta.stats`."""
        self.state_scale.learn("observation.state", stats)
        self.action_scale.learn("action", stats)
        for key, scale in zip(self.interface.cameras, self.camera_scales, strict=True):
            assert isinstance(scale, Scale)
            scale.learn(key, stats)

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """Return the loss of a batch and its terms."""
        state, actions = self.state_scale(batch["observation.state"]), batch["action"]
        actions, is_pad = self.action_scale(actions), batch["action_is_pad"]
        mean, log_variance = self.posterior(state, actions, is_pad)
        latent = mean + (0.5 * log_variance).exp() * torch.randn_like(mean)
        distance = self._distance(self._chunk(batch, state, latent), actions, batch)
        there = ~is_pad  # there are no actions to predict after an episode's end
        l1 = (distance * there).sum() / there.sum().clamp_min(1)
        kl = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum(-1)
        weight = self.config.kl_weight
        each = (distance * there).sum(1) / there.sum(1).clamp_min(1) + weight * kl
        losses = {"loss": l1 + weight * kl.mean(), "l1": l1, "kl": kl.mean()}
        return losses | {SAMPLE_LOSSES: each.detach()}

    @torch.no_grad()
    def predict(self, batch: Batch) -> Tensor:
        """Return the next actions, (batch, chunk, action), in their own units."""
        state = self.state_scale(batch["observation.state"])
        latent = state.new_zeros(len(state), self.config.latent)
        return self.action_scale.undo(self._chunk(batch, state, latent))

    @torch.no_grad()
    def errors(self, batch: Batch) -> Tensor:
        """Return the mean error of each action in standard deviations, (batch, chunk).

        Actions after an episode's end have none: their error is 0.
        """
        wanted = self.action_scale(batch["action"])
        distance = self._distance(self.action_scale(self.predict(batch)), wanted, batch)
        errors: Tensor = distance * ~batch["action_is_pad"]
        return errors

    def _distance(self, actions: Tensor, wanted: Tensor, batch: Batch) -> Tensor:
        """Return the mean distance of each action, over the dimensions that its robot has."""
        distance = (actions - wanted).abs()
        is_pad = batch.get("action_dim_is_pad")
        if is_pad is None:
            return distance.mean(-1)
        has: Tensor = ~is_pad[:, None]
        return (distance * has).sum(-1) / has.sum(-1).clamp_min(1)

    def _chunk(self, batch: Batch, state: Tensor, latent: Tensor) -> Tensor:
        """Return normalised actions."""
        first = [self.from_latent(latent)[:, None], self.from_state(state)[:, None]]
        seen = [self._embed_images(batch[key], n) for n, key in enumerate(self.interface.cameras)]
        tokens = [token + place for token, place in zip([*first, *seen], self.places, strict=True)]
        memory = self.encoder(torch.cat(tokens, dim=1))
        queries = self.queries.expand(len(state), -1, -1)
        actions: Tensor = self.to_action(self.decoder(queries, memory))
        return actions

    def _embed_images(self, images: Tensor, camera: int) -> Tensor:
        """Return the tokens of one camera's images, uint8 or in [0, 1]."""
        images = images.float() / 255 if images.dtype == torch.uint8 else images
        side = self.config.image_side_px
        if side and tuple(images.shape[-2:]) != (side, side):
            images = functional.interpolate(images, (side, side), mode="area")
        grid = self.from_eyes(self.eyes[camera](self.camera_scales[camera](images)))
        tokens: Tensor = (grid + _position_encoding(grid)).flatten(2).transpose(1, 2)
        return tokens


class Posterior(nn.Module):
    """The CVAE's encoder: from the state and the true actions to a distribution of the latent."""

    def __init__(self, config: ActConfig, interface: Interface) -> None:
        super().__init__()
        width = config.width
        self.from_state = nn.Linear(interface.state_size, width)
        self.from_action = nn.Linear(interface.action_size, width)
        self.summary = nn.Parameter(torch.randn(1, 1, width) * 0.02)
        self.places = nn.Parameter(torch.randn(2 + config.chunk, width) * 0.02)
        self.encoder = _encoder(config)
        self.to_latent = nn.Linear(width, 2 * config.latent)

    def forward(self, state: Tensor, actions: Tensor, is_pad: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mean and the logarithm of the variance of each latent number."""
        summary = self.summary.expand(len(state), -1, -1)
        tokens = [summary, self.from_state(state)[:, None], self.from_action(actions)]
        hidden = functional.pad(is_pad, (2, 0), value=False)
        seen = self.encoder(torch.cat(tokens, 1) + self.places, src_key_padding_mask=hidden)
        mean, log_variance = self.to_latent(seen[:, 0]).float().chunk(2, dim=-1)
        return mean, log_variance


def _encoder(config: ActConfig) -> nn.TransformerEncoder:
    layer = nn.TransformerEncoderLayer(config.width, **_layer_sizes(config))
    norm = nn.LayerNorm(config.width)
    return nn.TransformerEncoder(layer, config.encoder_layers, norm, enable_nested_tensor=False)


def _layer_sizes(config: ActConfig) -> dict[str, Any]:
    return {
        "nhead": config.heads,
        "dim_feedforward": config.feedforward,
        "dropout": config.dropout,
        "batch_first": True,
        "norm_first": True,
    }


def _position_encoding(grid: Tensor) -> Tensor:
    """Return the position encoding of a grid (batch, width, rows, columns).

    A quarter of the channels each holds sines and cosines of the row and of the column.
    """
    _, width, rows, columns = grid.shape
    quarter = torch.arange(width // 4, device=grid.device)
    frequency = torch.exp(-quarter * (4.0 / quarter.numel()))[:, None]
    row = (torch.arange(rows, device=grid.device) + 1) * (2 * torch.pi / rows) * frequency
    column = (torch.arange(columns, device=grid.device) + 1) * (2 * torch.pi / columns) * frequency
    parts = [
        *(part[:, :, None].expand(-1, -1, columns) for part in (row.sin(), row.cos())),
        *(part[:, None, :].expand(-1, rows, -1) for part in (column.sin(), column.cos())),
    ]
    return torch.cat(parts).to(grid.dtype)
