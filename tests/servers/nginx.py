# SPDX-License-Identifier: Apache-2.0
"""nginx on loopback, serving a folder."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from tests.servers.ports import free_port
from tests.servers.required import lacking

_START_TIMEOUT_S = 30
_CONFIGURATION = """\
daemon off;
master_process off;
pid nginx.pid;
error_log stderr warn;
events {{ worker_connections 1024; }}
http {{
    access_log access.log;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    server {{
        listen 127.0.0.1:{port};
        root "{root}";
        autoindex on;
        {settings}
        location /closed/ {{ deny all; }}
    }}
}}
"""


@contextmanager
def serve_nginx(root: Path, work: Path, settings: str = "") -> Iterator[str]:
    """Serve the files below a root, those in closed/ excepted, and yield the address.

    Args:
        root: What is served.
        work: An empty folder for nginx itself.
        settings: More lines of its configuration.
    """
    nginx = _find()
    port = free_port()  # nginx cannot choose one itself
    (work / "nginx.conf").write_text(_CONFIGURATION.format(port=port, root=root, settings=settings))
    command = [nginx, "-p", str(work), "-c", str(work / "nginx.conf")]
    with (work / "nginx.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        _wait_until_ready(process, port, work / "nginx.log")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def _find() -> str:
    places = [*os.environ.get("PATH", "").split(":"), "/usr/sbin", f"{sys.prefix}/nginx/usr/sbin"]
    found = shutil.which("nginx", path=":".join(places))
    if found is None:
        lacking("NGINX", "nginx is not here; scripts/get_nginx .venv/nginx brings it")
    return found


def _wait_until_ready(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while True:
        with closing(socket.socket()) as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"nginx did not start: {log.read_text(errors='replace')}")
        time.sleep(0.05)
