# SPDX-License-Identifier: Apache-2.0
"""Torch: samplers, datasets, loaders, ranks and state."""
