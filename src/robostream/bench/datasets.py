# SPDX-License-Identifier: Apache-2.0
"""Synthetic datasets for benchmarks, made once and used again."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
from pathlib import Path

from robostream import config
from robostream.loader import share_of_cores
from robostream.tools import SynthSpec, make_dataset


def bench_dataset(name: str, spec: SynthSpec) -> Path:
    """Return the folder of a dataset, made now if it is not there yet.

    It lies in `$ROBOSTREAM_CACHE/bench` under its name and a digest of what it is made of, and may
    be deleted at any time.
    """
    text = json.dumps(dataclasses.asdict(spec), sort_keys=True, default=str)
    folder = config.bench_home() / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    if not folder.is_dir():
        aside = folder.with_name(f"{folder.name}.{os.getpid()}")
        shutil.rmtree(aside, ignore_errors=True)
        aside.parent.mkdir(parents=True, exist_ok=True)
        print(f"making {folder.name}, which later runs use again", flush=True)
        make_dataset(aside, spec, jobs=share_of_cores(1))
        aside.rename(folder)
    return folder
