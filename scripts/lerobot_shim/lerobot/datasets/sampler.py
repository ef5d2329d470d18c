# SPDX-License-Identifier: Apache-2.0
"""The sampler."""

from robostream import EpisodeAwareSampler, compute_sampler_state

__all__ = ["EpisodeAwareSampler", "compute_sampler_state"]
