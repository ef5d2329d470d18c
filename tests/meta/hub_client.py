# SPDX-License-Identifier: Apache-2.0
"""Opens metadata in a process of its own, because huggingface_hub reads its settings at import."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from robostream.errors import RobostreamError
from robostream.meta import LeRobotDatasetMetadata, location_of
from robostream.storage import FileOpener

REPO = Path(__file__).parents[2]


def open_metadata(
    endpoint: str, home: Path, *, offline: bool = False, read: str | None = None, **arguments: Any
) -> dict[str, Any]:
    """Return what a fresh process finds when it opens metadata, or the error it gets.

    Args:
        endpoint: Address of the Hub.
        home: Folder for all caches and local datasets.
        offline: Whether huggingface_hub may use the network.
        read: A file of the dataset to read as well, relative to its root.
        **arguments: Arguments of LeRobotDatasetMetadata.
    """
    environment = os.environ | {
        "HF_ENDPOINT": endpoint,
        "HF_HOME": str(home),
        "HF_LEROBOT_HOME": str(home / "lerobot"),
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_OFFLINE": "1" if offline else "0",
    }
    command = [sys.executable, "-m", "tests.meta.hub_client", json.dumps(arguments), read or ""]
    done = subprocess.run(command, env=environment, cwd=REPO, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main(arguments: dict[str, Any], read: str) -> dict[str, Any]:
    """Open metadata and return it, or the error, as plain values."""
    warnings: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: warnings.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("robostream").addHandler(handler)
    try:
        meta = LeRobotDatasetMetadata(**arguments)
        source = FileOpener(location_of(meta)).open(read) if read else None
        content = source.read(0, source.size()) if source else b""
    except RobostreamError as error:
        return {"error": type(error).__name__, "message": str(error), "warnings": warnings}
    return {
        "root": str(meta.root),
        "url": meta.url_root,
        "revision": meta.revision,
        "fingerprint": meta.fingerprint,
        "sha256": hashlib.sha256(content).hexdigest(),
        "warnings": warnings,
    }


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]), sys.argv[2])))
