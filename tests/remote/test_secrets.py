# SPDX-License-Identifier: Apache-2.0
"""Tokens, keys and signatures reach worker processes and appear nowhere else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from robostream.testing import Fault, Script, start_proxy
from tests.remote.conftest import stream_epochs
from tests.remote.places import s3_environment
from tests.remote.program import Report
from tests.servers.hub import Hub
from tests.servers.s3 import S3Endpoint

TOKEN = "hf_planted7Q2zXsecret"
# Endings of a run: all is well, or requests for videos are answered thus from the third on; or a
# video changes after some of it was read, which takes a stream that keeps nothing.
ENDINGS: list[dict[str, Any]] = [
    {},
    {"kind": "status", "status": 403},
    {"kind": "status", "status": 404},
    {"kind": "etag", "skip": 8},
]
KEEPS_NOTHING = {"cache_limit": 0, "frame_cache_bytes": 0}


def texts_of(report: Report, home: Path) -> dict[str, bytes]:
    """All that a program said or left behind, by where it is."""
    files = {str(path): path.read_bytes() for path in home.rglob("*") if path.is_file()}
    said = {"log": report.log, "words": report.words, "message": report.message}
    return files | {name: text.encode() for name, text in said.items()}


def assert_hidden(secrets: list[str], report: Report, home: Path) -> None:
    texts = texts_of(report, home)
    found = [
        (secret, where) for secret in secrets for where in texts if secret.encode() in texts[where]
    ]

    assert found == []


def faults(ending: dict[str, Any]) -> Script:
    fault = {"path": r"(resolve|lfs|secrets)/.*videos/", "skip": 2} | ending
    return Script((Fault(**fault),) if ending else ())


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("where", ["environment", "argument"])
def test_tokens_and_signed_addresses_stay_hidden(
    hub: Hub, dataset: Path, tmp_path: Path, where: str, ending: dict[str, Any]
) -> None:
    """In whatever way the run ends, and however the token came."""
    hub.add_repo("lab/cups", token=TOKEN).commit(dataset, tags=["v3.0"])
    home = tmp_path / "home"
    stream: dict[str, Any] = {"repo_id": "lab/cups", "cache_dir": str(home / "cache")}
    stream |= KEEPS_NOTHING if ending.get("kind") == "etag" else {}
    with start_proxy(hub.url, faults(ending)) as proxy:
        environment = {"HF_ENDPOINT": proxy.url}
        if where == "argument":
            stream["token"] = TOKEN
        else:
            environment["HF_TOKEN"] = TOKEN
        report = stream_epochs(home, stream, environment)

    assert bool(report.error) == bool(ending), report.words
    assert hub.signer.given
    assert_hidden([TOKEN, *hub.signer.given], report, home)


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("where", ["environment", "argument"])
def test_keys_stay_hidden(
    s3: S3Endpoint, dataset: Path, tmp_path: Path, where: str, ending: dict[str, Any]
) -> None:
    """The secret key of S3, in variables or in storage_options, and the signatures made of it."""
    home = tmp_path / "home"
    stream: dict[str, Any] = {
        "repo_id": "lab/cups",
        "root": s3.upload(dataset, f"secrets/{tmp_path.name}"),
        "cache_dir": str(home / "cache"),
    }
    stream |= KEEPS_NOTHING if ending.get("kind") == "etag" else {}
    with start_proxy(s3.url, faults(ending)) as proxy:
        environment = s3_environment(s3) | {"AWS_ENDPOINT_URL": proxy.url}
        if where == "argument":
            stream["storage_options"] = s3.storage_options | {"endpoint_url": proxy.url}
            environment = {"AWS_EC2_METADATA_DISABLED": "true"}
        report = stream_epochs(home, stream, environment)

    assert bool(report.error) == bool(ending), report.words
    assert_hidden([s3.secret], report, home)
