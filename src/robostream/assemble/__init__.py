# SPDX-License-Identifier: Apache-2.0
"""Samples: rows, windows, pads and pictures put together."""
