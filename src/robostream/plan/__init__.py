# SPDX-License-Identifier: Apache-2.0
"""In which order: the pure arithmetic of an epoch. No I/O, no torch, no clock, no global RNG."""
