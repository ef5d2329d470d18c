# SPDX-License-Identifier: Apache-2.0
"""Tokens, keys and signatures reach worker processes and appear nowhere else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest

from robostream.testing import Fault, Script, serve_files, start_proxy
from tests.remote.conftest import stream_epochs
from tests.remote.program import Report
from tests.remote.stores import s3_environment
from tests.servers.ftp import serve_ftp
from tests.servers.hub import Hub
from tests.servers.s3 import S3Endpoint

pytestmark = pytest.mark.long

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
    """Return all output and files of a program, by their origin."""
    files = {str(path): content_of(path) for path in home.rglob("*") if path.is_file()}
    files["names of files"] = "\n".join(str(path) for path in home.rglob("*")).encode()
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
    """This holds however the run ends and however the token is passed."""
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
    """This holds for S3's secret key, in variables or storage_options, and its signatures."""
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


# Ten kinds of secret, wherever they are planted; PORT is where a web server listens.
PLANTED = "pLanted5ecret"
ADDRESSES = [
    "http://ann:pLanted5ecret@127.0.0.1:PORT/none?sig=pLanted5ecret",
    "http://ann:pLanted5ecret/x@127.0.0.1:PORT/none",
    "http://ann:x#pLanted5ecret@127.0.0.1:PORT/none",
    "http://ann:x?pLanted5ecret@127.0.0.1:PORT/none",
    "http://ann:x@pLanted5ecret@127.0.0.1:99999/none",
    "sftp://ann:pLanted5ecret@127.0.0.1/none",
    "sftp://ann:pLanted/5ecret/pLanted5ecret@127.0.0.1/none",
    "ftp://ann:pLanted5ecret@127.0.0.1:1/none",
    "s3://KEY:pLanted5ecret@bucket/none",
    "s3://KEY:x/pLanted5ecret@bucket/none",
    "hf://ann:pLanted5ecret@datasets/lab/cups",
    "unknown://ann:pLanted5ecret@host/none?sig=pLanted5ecret",
    "unknown://ann:pLanted5ecret/x@host/none",
]


# Reads a sample of each dataset, or runs a command, and says how that ended.
MANY = """
import json, logging, os, sys, traceback
from robostream import LeRobotDataset
from robostream.cli.main import main
logging.basicConfig(level=logging.INFO)
logging.getLogger("robostream").setLevel(logging.DEBUG)
endings = []
for case in json.load(sys.stdin):
    os.environ |= case.get("environment", {})
    try:
        if "command" in case:
            endings.append(main(case["command"]))
        else:
            dataset = LeRobotDataset(**case["dataset"])
            print(dataset, vars(dataset), dataset[0]["index"])
            endings.append("")
    except Exception as error:
        traceback.print_exc()
        endings.append(type(error).__module__)
open(sys.argv[1], "w").write(json.dumps(endings))
"""


def content_of(path: Path) -> bytes:
    """Return a file's bytes; of an index, what is compressed behind its magic word and digest."""
    content = path.read_bytes()
    return zlib.decompress(content[40:]) if path.suffix == ".index" else content


def run_cases(cases: list[dict[str, Any]], home: Path, environment: dict[str, str]) -> list[Any]:
    """Run all cases in one process, and return how they ended; nothing may show what is planted."""
    home.mkdir()
    variables = {"HF_HOME": f"{home}/hf", "ROBOSTREAM_CACHE": f"{home}/robostream"}
    variables |= {"ROBOSTREAM_REMOTE_IO_MAX_RETRIES": "0", "HF_HUB_DISABLE_XET": "1"}
    ran = subprocess.run(
        [sys.executable, "-c", MANY, str(home / "endings")],
        env=os.environ | variables | environment,
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        check=False,
    )
    files = [content_of(path).decode("latin-1") for path in home.rglob("*") if path.is_file()]
    lines = [ran.stdout, ran.stderr, *map(str, home.rglob("*")), *files]
    shown = [line for text in lines for line in text.splitlines() if PLANTED[:7] in line]

    assert [line[:500] for line in shown] == []
    assert ran.returncode == 0, ran.stderr
    return list(json.loads((home / "endings").read_text()))


def test_secrets_in_addresses_stay_hidden(dataset: Path, tmp_path: Path) -> None:
    """No kind of address shows its secrets, in datasets and commands; errors are our own."""
    copy = str(tmp_path / "home" / "copy")
    with serve_files(dataset) as url:
        addresses = [address.replace("PORT", url.rpartition(":")[2]) for address in ADDRESSES]
        cases = [
            case
            for address in addresses
            for case in (
                {"dataset": {"repo_id": address}},
                {"dataset": {"repo_id": "lab/cups", "root": address}},
                {"command": ["recode", address, copy]},
                {"command": ["info", address]},
            )
        ]
        endings = run_cases(cases, tmp_path / "home", {})

    assert endings == ["robostream.errors", "robostream.errors", 1, 1] * len(ADDRESSES)


def test_tokens_with_a_line_break_stay_hidden(
    hub: Hub, s3: S3Endpoint, dataset: Path, tmp_path: Path
) -> None:
    """White space around a token is removed; a token that no header can hold is not shown."""
    hub.add_repo("lab/cups", token=PLANTED).commit(dataset, tags=["v3.0"])
    hub.add_bucket("lab/cups", dataset, token=PLANTED)
    bucket = s3.upload(dataset, f"secrets/{tmp_path.name}")
    keys = {"key": s3.key + "\n", "secret": s3.secret + "\n"}
    wanted: list[str] = []
    cases: list[dict[str, Any]] = []
    for ending in ("\n", " \r\n", "\n\nX", "\u20ac"):
        token = PLANTED + ending
        options = {"repo_id": "lab/cups", "storage_options": {"token": token}}
        cases += [
            {"dataset": options | {"root": f"{hub.url}/buckets/lab/cups/resolve"}},
            {"dataset": options | {"root": "hf://buckets/lab/cups"}},
            {"dataset": {"repo_id": "lab/cups", "token": token}},
            # The server knows no such session and refuses it: what counts is what is said then.
            {"dataset": options | {"root": bucket, "storage_options": keys | {"token": token}}},
            {
                "dataset": {"repo_id": "lab/cups", "root": bucket},
                "environment": {"AWS_SESSION_TOKEN": token},
            },
        ]
        wanted += ["robostream.errors" if ending.strip() else ""] * 3
    endings = run_cases(cases, tmp_path / "home", s3_environment(s3) | {"HF_ENDPOINT": hub.url})

    assert [ending for place, ending in enumerate(endings) if place % 5 < 3] == wanted
    assert set(endings) <= {"", "robostream.errors"}


@pytest.mark.parametrize("repo", ["lab/cups", "lab/none"])
def test_a_password_in_the_endpoint_stays_hidden(
    hub: Hub, dataset: Path, tmp_path: Path, repo: str
) -> None:
    """HF_ENDPOINT may name a mirror with a password; no log, error or file shows it."""
    hub.add_repo("lab/cups").commit(dataset, tags=["v3.0"])
    home = tmp_path / "home"
    endpoint = hub.url.replace("://", f"://ann:{PLANTED}@")
    environment = {"HF_ENDPOINT": endpoint, "ROBOSTREAM_REMOTE_IO_MAX_RETRIES": "0"}
    report = stream_epochs(home, {"repo_id": repo}, environment)

    assert bool(report.error) == (repo == "lab/none"), report.words
    assert_hidden([PLANTED], report, home)


def test_a_password_for_ftp_stays_hidden(dataset: Path, tmp_path: Path) -> None:
    """Video indices and cached bytes have an address without it."""
    home = tmp_path / "home"
    with serve_ftp(dataset, "ann", PLANTED) as url:
        address = url.replace("://", f"://ann:{PLANTED}@")
        cases = [{"dataset": {"repo_id": "lab/cups", "root": address}}]
        endings = run_cases(cases, home, {})

    assert endings == [""]
    assert list(home.rglob("*.index"))
