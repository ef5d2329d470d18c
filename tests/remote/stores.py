# SPDX-License-Identifier: Apache-2.0
"""One dataset in every store that it can be read from."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.servers.hub import serve_hub
from tests.servers.nginx import serve_nginx
from tests.servers.s3 import S3Endpoint

STORES = ("hub", "bucket", "s3", "http")
_BUCKET = "remote-tests"


@dataclass(frozen=True, slots=True)
class Served:
    """A dataset on a server.

    Attributes:
        url: The server's address.
        stream: Arguments of a stream over the dataset.
        environment: Variables its process needs, credentials among them.
    """

    url: str
    stream: dict[str, Any]
    environment: dict[str, str]

    def behind(self, url: str) -> Served:
        """Return the same dataset, reached through another address."""
        swap = {self.url: url}
        return replace(
            self,
            url=url,
            stream={key: swap.get(value, value) for key, value in self.stream.items()},
            environment={key: swap.get(value, value) for key, value in self.environment.items()},
        )


@contextmanager
def serve(store: str, root: Path, work: Path, s3: S3Endpoint) -> Iterator[Served]:
    """Serve a dataset from a store and yield how to reach it.

    Args:
        store: One of STORES.
        root: The dataset.
        work: An empty folder for the server itself.
        s3: The S3 server, which all tests share.
    """
    if store in ("hub", "bucket"):
        with serve_hub() as hub:
            hub.add_repo("lab/cups").commit(root, tags=["v3.0"])
            hub.add_bucket("lab/cups", root)
            stream = {"repo_id": "lab/cups"}
            if store == "bucket":
                stream |= {"root": "hf://buckets/lab/cups"}
            yield Served(hub.url, stream, {"HF_ENDPOINT": hub.url})
    elif store == "s3":
        address = s3.upload(root, f"{_BUCKET}/{work.name}")
        yield Served(s3.url, {"repo_id": "lab/cups", "root": address}, s3_environment(s3))
    else:
        with serve_nginx(root, work) as url:
            yield Served(url, {"repo_id": "lab/cups", "root": url}, {})


def s3_environment(s3: S3Endpoint) -> dict[str, str]:
    """Return the variables S3 clients usually look at."""
    return {
        "AWS_ENDPOINT_URL": s3.url,
        "AWS_ACCESS_KEY_ID": s3.key,
        "AWS_SECRET_ACCESS_KEY": s3.secret,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
