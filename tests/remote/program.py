# SPDX-License-Identifier: Apache-2.0
"""A whole program: it opens a stream, consumes epochs, and says what it saw.

    python -m tests.remote.program '{"stream": {...}, "loader": {...}, "epochs": 1}'

In a process of its own, because libraries read addresses and credentials when they are imported.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import subprocess
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robostream import StreamingDataLoader, StreamingLeRobotDataset
from tests.remote.digest import EpochDigest, digest_epoch

REPO = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Report:
    """What a program saw.

    Attributes:
        epochs: The digest of each epoch.
        stats: What the loader counted.
        error: The name of the error that ended it, or "".
        message: The error's message.
        words: All it put into words: its state, the representation of its objects, tracebacks.
        log: What it logged: robostream everything, other libraries from INFO on.
    """

    epochs: list[EpochDigest]
    stats: dict[str, float]
    error: str
    message: str
    words: str
    log: str


def run_program(
    home: Path,
    stream: dict[str, Any],
    environment: dict[str, str],
    *,
    epochs: int = 1,
    **loader: Any,
) -> Report:
    """Run a program that keeps all its files below `home`, and return its report.

    Args:
        home: Folder for all caches.
        stream: Arguments of the stream.
        environment: Variables beside those of this process.
        epochs: How many epochs to consume.
        **loader: Arguments of the loader.
    """
    request = {"stream": stream, "loader": loader, "epochs": epochs}
    done = subprocess.run(
        [sys.executable, "-m", "tests.remote.program", json.dumps(request)],
        env=os.environ | _places(home) | environment,
        cwd=REPO,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    digests = [
        EpochDigest(tuple(epoch["receipts"]), tuple(epoch["indices"]), epoch["values"])
        for epoch in found.pop("epochs")
    ]
    return Report(epochs=digests, log=done.stderr, **found)


def _places(home: Path) -> dict[str, str]:
    return {
        "HF_HOME": f"{home}/hf",
        "HF_LEROBOT_HOME": f"{home}/lerobot",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_XET": "1",
        "ROBOSTREAM_CACHE": f"{home}/robostream",
    }


def _report(request: dict[str, Any]) -> dict[str, Any]:
    report: dict[str, Any] = {"epochs": [], "stats": {}, "error": "", "message": "", "words": ""}
    try:
        stream = StreamingLeRobotDataset(**request["stream"])
        loader = StreamingDataLoader(stream, **request["loader"])
        words = [repr(stream), repr(loader), repr(stream.meta), repr(vars(stream))]
        for _ in range(request["epochs"]):
            report["epochs"].append(dataclasses.asdict(digest_epoch(loader)))
        report["stats"] = loader.stats()
        words += [json.dumps(loader.state_dict()), json.dumps(loader.stats())]
        report["words"] = "\n".join(words)
        loader.close()
    except Exception as error:
        # All kinds: which one it is and how it reads is what tests look at.
        report |= {
            "error": type(error).__name__,
            "message": str(error),
            "words": traceback.format_exc(),
        }
    return report


if __name__ == "__main__":
    # Other libraries as chatty as people have them, ours as chatty as can be.
    logging.basicConfig(level=logging.INFO)
    logging.getLogger("robostream").setLevel(logging.DEBUG)
    print(json.dumps(_report(json.loads(sys.argv[1]))))
