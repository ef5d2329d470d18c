# SPDX-License-Identifier: Apache-2.0
"""A picture of what a shuffle gives, and at what price."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from robostream.errors import MissingExtraError
from robostream.tools.shuffle_quality import ShuffleQuality


def plot_qualities(qualities: Sequence[ShuffleQuality], batch_size: int, path: Path) -> None:
    """Draw diversity against pool size and against gap, one line per method, into `path`."""
    try:
        # The figure class alone: pyplot would look for a display.
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("matplotlib", "plot", "the plot of shuffle quality") from error
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    _draw(left, qualities, "pool_size")
    _draw(right, qualities, "gap")
    left.set_ylabel(f"distinct episodes per batch of {batch_size},\nshare of a uniform shuffle")
    left.set_xlabel("pool size (episodes)")
    right.set_xlabel("episodes open at a time (gap)")
    left.set_ylim(0, 1.05)
    right.legend(fontsize="small", loc="lower right")
    figure.savefig(path)


def _draw(axes: Any, qualities: Sequence[ShuffleQuality], attribute: str) -> None:
    for method in dict.fromkeys(quality.method for quality in qualities):
        own = [quality for quality in qualities if quality.method == method]
        places = [getattr(quality, attribute) for quality in own]
        axes.plot(places, [quality.diversity for quality in own], marker="o", label=method)
    axes.set_xscale("log", base=2)
    axes.grid(alpha=0.3)
