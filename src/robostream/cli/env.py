# SPDX-License-Identifier: Apache-2.0
"""`robostream env`: the machine, the software and the settings, to paste into an issue report."""

from __future__ import annotations

import argparse
import os
import re
import shutil
from collections.abc import Mapping
from typing import Any

from robostream import config
from robostream.byte_sizes import format_bytes
from robostream.cli.arguments import add_json, print_result
from robostream.loader import share_of_cores, usable_memory
from robostream.tools import check_gpu, describe_software

EXAMPLES = """\
  robostream env            paste what it prints into an issue report
  robostream env --json
"""
# Extras and what they bring; see pyproject.toml.
_OPTIONAL = ("accelerate", "botocore", "lerobot", "matplotlib", "torchdata")
_SETTINGS = re.compile(
    r"(ROBOSTREAM|HF|LEROBOT|AWS|SLURM|OMP|CUDA|NCCL)_\w+|RANK|WORLD_SIZE|LOCAL_RANK"
)
# The values of these variables may be printed: numbers, folders and switches.
_HARMLESS = re.compile(
    r"ROBOSTREAM_\w+|(HF|HF_HUB|HF_LEROBOT|LEROBOT)_(HOME|CACHE|OFFLINE)|OMP_\w+|CUDA_VISIBLE_DEVICES"
    r"|SLURM_(NTASKS|NNODES|PROCID|STEP_NUM_TASKS|CPUS_PER_TASK)|RANK|WORLD_SIZE|LOCAL_RANK"
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `robostream env`."""
    add_json(parser, "everything")


def run(args: argparse.Namespace) -> int:
    """Print the machine, the software and the settings."""
    found = describe_environment(os.environ)
    lines = [f"{name:<20} {_flatten(value)}" for name, value in found.items()]
    print_result(args, found, "\n".join(lines))
    return 0


def describe_environment(variables: Mapping[str, str]) -> dict[str, Any]:
    """Return what decides how robostream behaves here; holds no credentials."""
    gpu = check_gpu()
    home = config.cache_home()
    existing = next(path for path in (home, *home.parents) if path.exists())
    return {
        **describe_software(_OPTIONAL),
        "cores": share_of_cores(1),
        "memory": f"{format_bytes(usable_memory())} available",
        "gpus": list(gpu.cards),
        "nvidia driver": gpu.driver or "none",
        "gpu decoding": gpu.obstacle or "no known obstacle",
        "cache": f"{home}, {format_bytes(shutil.disk_usage(existing).free)} free",
        "variables": {
            name: value if _HARMLESS.fullmatch(name) else "set"
            for name, value in sorted(variables.items())
            if _SETTINGS.fullmatch(name)
        },
    }


def _flatten(value: Any) -> str:
    if isinstance(value, Mapping):
        value = [f"{key}={entry}" for key, entry in value.items()]
    return (", ".join(value) or "none") if isinstance(value, list) else str(value)
