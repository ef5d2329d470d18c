# SPDX-License-Identifier: Apache-2.0
"""Bytes: ranges of local and remote files."""
