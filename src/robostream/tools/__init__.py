# SPDX-License-Identifier: Apache-2.0
"""Whole jobs on datasets: synthesise, diagnose."""
