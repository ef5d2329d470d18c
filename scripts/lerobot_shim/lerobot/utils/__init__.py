# SPDX-License-Identifier: Apache-2.0
"""Names of lerobot.utils."""
