# SPDX-License-Identifier: Apache-2.0
"""Start the file server and the proxy in processes of their own, and control the proxy."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from robostream.testing.faults import Script
from robostream.testing.http_message import Exchange, counts


class Proxy:
    """A running proxy.

    Attributes:
        url: Its address; paths are those of the server behind it.
    """

    def __init__(self, url: str, process: subprocess.Popen[str]) -> None:
        self.url = url
        self._process = process

    def play(self, script: Script) -> None:
        """Apply a script from now on."""
        self._command("script", script.to_dict())

    def journal(self, after: int = 0) -> list[Exchange]:
        """Return all completed exchanges after the first `after`."""
        return [Exchange(*line) for line in self._command("journal", after)]

    def counts(self) -> dict[str, Any]:
        """Return the totals of the journal."""
        return counts(self.journal())

    def _command(self, name: str, argument: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([name, argument]) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


@contextmanager
def start_proxy(upstream: str, script: Script | None = None) -> Iterator[Proxy]:
    """Run a proxy in front of the server at `upstream` and yield it."""
    with _running("proxy", upstream) as (url, process):
        proxy = Proxy(url, process)
        if script is not None:
            proxy.play(script)
        yield proxy


@contextmanager
def serve_files(folder: Path) -> Iterator[str]:
    """Serve the files of a folder and yield the address."""
    with _running("file_server", str(folder)) as (url, _):
        yield url


@contextmanager
def _running(module: str, argument: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    command = [sys.executable, "-m", f"robostream.testing.{module}", argument]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            url = process.stdout.readline().strip()
            if not url:
                raise RuntimeError(f"{module} {argument} did not start; see its message above")
            yield url, process
        finally:
            process.stdin.close()
            process.wait(timeout=30)
