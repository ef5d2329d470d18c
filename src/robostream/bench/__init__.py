# SPDX-License-Identifier: Apache-2.0
"""Measurements that print ratios against a reference."""
