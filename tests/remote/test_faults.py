# SPDX-License-Identifier: Apache-2.0
"""Single faults: what passes, what is told, and when a run gives up."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from robostream.testing import Fault, Script, serve_files, start_proxy
from tests.remote.conftest import Serve, stream_epochs
from tests.remote.program import Report
from tests.servers.hub import Hub

TRANSIENT = [
    Fault("status", status=408),
    Fault("status", status=425),
    Fault("status", status=429, retry_after_s=1),
    Fault("status", status=429, retry_after_s=1, as_date=True),
    Fault("status", status=500),
    Fault("status", status=503),
    Fault("status", status=504),
    Fault("reset"),
    Fault("reset", at_bytes=0),
    Fault("truncate"),
    Fault("short"),
    Fault("overlong"),
    Fault("wrong_range"),
    Fault("ignore_range"),
]
FIRST_VIDEO = "videos/observation.images.front/chunk-000/file-000.mp4"


@pytest.mark.long
def test_a_transient_fault_never_ends_a_run(dataset: Path, local: Report, tmp_path: Path) -> None:
    """Each fault hits the first two requests for a file; the epoch is the same as without."""
    files = (f"{key}/chunk-000/file-{n:03d}.mp4" for n in range(7) for key in ("front", "wrist"))
    faults = dict(zip(files, TRANSIENT, strict=True))
    script = Script(tuple(dataclasses.replace(f, path=p, times=2) for p, f in faults.items()))
    with serve_files(dataset) as server, start_proxy(server, script) as proxy:
        stream = {"repo_id": "lab/cups", "root": proxy.url}
        report = stream_epochs(tmp_path, stream, {}, num_workers=0)
        suffered = {(e.path.partition("images.")[2], e.fault) for e in proxy.journal() if e.fault}

    assert report.error == "", report.words
    assert report.epochs[0] == local.epochs[0]
    assert suffered == {(path, fault.kind) for path, fault in faults.items()}
    assert report.stats["retries"] >= len(TRANSIENT)


@pytest.mark.long
@pytest.mark.parametrize("skip", [1, 8])  # right after the first look, or in the epoch
@pytest.mark.parametrize("place", ["bucket", "s3", "http"])  # a repo's commit never changes
def test_a_file_that_changes_is_an_error(
    served: Serve, tmp_path: Path, place: str, skip: int
) -> None:
    """Parts of two versions are never mixed: the run ends and names the file."""
    found = served(place)
    with start_proxy(found.url, Script((Fault("etag", path=FIRST_VIDEO, skip=skip),))) as proxy:
        near = found.behind(proxy.url)
        # Without a cache and kept pictures, the file is read in many small parts.
        stream = near.stream | {"cache_limit": 0, "frame_cache_bytes": 0}
        report = stream_epochs(tmp_path / "home", stream, near.environment, num_workers=0)

    assert report.error == "ChangedFileError", report.words
    assert FIRST_VIDEO in report.message
    assert "chang" in report.message


@pytest.mark.long
@pytest.mark.parametrize("retries", [0, 2])
def test_a_server_that_stays_away_is_given_up(dataset: Path, tmp_path: Path, retries: int) -> None:
    """The error comes after the configured retries, with the address and the attempts."""
    script = Script((Fault("status", status=503, path=FIRST_VIDEO),))
    with serve_files(dataset) as server, start_proxy(server, script) as proxy:
        stream = {"repo_id": "lab/cups", "root": proxy.url}
        environment = {"ROBOSTREAM_REMOTE_IO_MAX_RETRIES": str(retries)}
        report = stream_epochs(tmp_path, stream, environment, num_workers=0)

    assert report.error, report.words
    assert f"{proxy.url}/{FIRST_VIDEO}" in report.message
    assert f"gave up after {1 + retries} attempts" in report.message
    assert "503" in report.message


@pytest.mark.long
@pytest.mark.parametrize("uses", [None, 1])
def test_signed_addresses_are_resolved_once_and_again_when_they_expire(
    hub: Hub, dataset: Path, local: Report, tmp_path: Path, uses: int | None
) -> None:
    """Each file costs about one look-up per process, unless a signed URL is valid only once."""
    hub.signer.uses = uses
    hub.add_repo("lab/cups").commit(dataset, tags=["v3.0"])
    report = stream_epochs(tmp_path, {"repo_id": "lab/cups"}, {"HF_ENDPOINT": hub.url})
    looked_up = [
        number
        for (kind, path), number in hub.counts().items()
        if kind == "resolve" and "mp4" in path
    ]

    assert report.error == "", report.words
    assert report.epochs[0] == local.epochs[0]
    assert uses is not None or sum(looked_up) <= 2 * len(looked_up)
