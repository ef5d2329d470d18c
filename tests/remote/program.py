# SPDX-License-Identifier: Apache-2.0
"""A whole program that opens a stream, consumes epochs and reports them.

In a process of its own, because libraries read addresses and credentials when they are imported.
Importing torch takes longer than most of these programs, so they are forked from a process that has
imported it, and none of the libraries in question.
"""

from __future__ import annotations

import atexit
import dataclasses
import functools
import json
import logging
import os
import subprocess
import sys
import tempfile
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robostream import StreamingDataLoader, StreamingLeRobotDataset
from tests.remote.digest import EpochDigest, digest_epoch

REPO = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Report:
    """The report of a program.

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
    found, log = _stem().run(
        {"stream": stream, "loader": loader, "epochs": epochs},
        os.environ | _places(home) | environment,
    )
    digests = [
        EpochDigest(tuple(epoch["receipts"]), tuple(epoch["indices"]), epoch["values"])
        for epoch in found.pop("epochs")
    ]
    return Report(epochs=digests, log=log, **found)


class Stem:
    """The process that programs are forked from, one at a time. It ends with this one."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.remote.program"]
        self._process = subprocess.Popen(
            command, cwd=REPO, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(
        self, request: dict[str, Any], environment: dict[str, str]
    ) -> tuple[dict[str, Any], str]:
        """Run a program; return its report and its standard error."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with tempfile.TemporaryDirectory() as folder:
            found, log = Path(folder, "found.json"), Path(folder, "log")
            print(json.dumps([request, environment, folder]), file=self._process.stdin, flush=True)
            status = self._process.stdout.readline().strip()
            text = log.read_text(errors="replace")
            assert status == "0", text
            return json.loads(found.read_text()), text

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


@functools.cache
def _stem() -> Stem:
    stem = Stem()
    atexit.register(stem.close)
    return stem


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
        # Every kind: tests check the type and the text.
        report |= {
            "error": type(error).__name__,
            "message": str(error),
            "words": traceback.format_exc(),
        }
    return report


def _fork(request: dict[str, Any], environment: dict[str, str], folder: str) -> int:
    """Run a program in a forked process and return its exit code."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 1
    try:
        os.environ.clear()
        os.environ.update(environment)
        log = os.open(f"{folder}/log", os.O_WRONLY | os.O_CREAT)
        for stream in (1, 2):
            os.dup2(log, stream)
        # Other libraries log at their usual level, ours at debug level.
        logging.basicConfig(level=logging.INFO)
        logging.getLogger("robostream").setLevel(logging.DEBUG)
        Path(folder, "found.json").write_text(json.dumps(_report(request)))
        code = 0
    finally:
        sys.stderr.flush()
        # Not sys.exit: the loop below belongs to the parent.
        os._exit(code)


if __name__ == "__main__":
    for line in sys.stdin:
        print(_fork(*json.loads(line)), flush=True)
