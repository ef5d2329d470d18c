# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import hashlib
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from robostream.meta import LeRobotDatasetMetadata
from tests.fixture_datasets import FIXTURES, copy_of, edit_info
from tests.meta.hub_client import open_metadata
from tests.parameters import long_except
from tests.servers.hub import Hub

FIRST, SECOND = FIXTURES / "av1_multifile", FIXTURES / "images"
DATA = "data/chunk-000/file-000.parquet"
UNREACHABLE = "http://127.0.0.1:9"


def fingerprint(root: Path) -> str:
    return LeRobotDatasetMetadata("local", root=root).fingerprint


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def meta_files(root: Path) -> list[str]:
    found = (root / "meta").rglob("*")
    return sorted(path.relative_to(root).as_posix() for path in found if path.is_file())


def test_only_meta_is_downloaded_and_only_once(hub: Hub, tmp_path: Path) -> None:
    """Opening a repo transfers each file of meta/ once and nothing else; again, nothing."""
    commit = hub.add_repo("lab/cups").commit(FIRST, tags=["v3.0"])

    first = open_metadata(hub.url, tmp_path, repo_id="lab/cups")
    assert first["fingerprint"] == fingerprint(FIRST)
    assert first["revision"] == commit
    assert first["url"] == f"hf://datasets/lab/cups@{commit}"
    assert sorted(hub.downloads("lab/cups")) == meta_files(FIRST)
    assert not (Path(first["root"]) / "data").exists()

    hub.requests.clear()
    assert open_metadata(hub.url, tmp_path, repo_id="lab/cups") == first
    assert hub.downloads("lab/cups") == []


def test_without_a_network_the_cache_serves(hub: Hub, tmp_path: Path) -> None:
    """What was opened once opens again offline without a request, and when the Hub is gone."""
    hub.add_repo("lab/cups").commit(FIRST, tags=["v3.0"])
    online = open_metadata(hub.url, tmp_path, repo_id="lab/cups")
    hub.requests.clear()

    assert open_metadata(hub.url, tmp_path, repo_id="lab/cups", offline=True) == online
    assert hub.requests == []
    gone = open_metadata(UNREACHABLE, tmp_path, repo_id="lab/cups")
    assert gone | {"warnings": []} == online
    assert "out of reach" in gone["warnings"][0]


def test_a_moving_branch_is_pinned_to_the_commit_it_had(hub: Hub, tmp_path: Path) -> None:
    """A branch, a tag and a commit are read as they name it; rows come from that commit too."""
    repo = hub.add_repo("lab/cups")
    old = repo.commit(FIRST, tags=["v3.0"])
    new = repo.commit(SECOND)
    opened = partial(open_metadata, hub.url, tmp_path, repo_id="lab/cups", read=DATA)
    wanted = [("main", new, SECOND), ("v3.0", old, FIRST), (old, old, FIRST)]

    for revision, commit, folder in wanted:
        found = opened(revision=revision)
        assert found["revision"] == commit
        assert found["fingerprint"] == fingerprint(folder)
        assert found["sha256"] == sha256(folder / DATA)
    resolved = {r.path.split("/")[5] for r in hub.requests if "/resolve/" in r.path}
    assert resolved == {old, new}


@pytest.mark.parametrize("revision", long_except(["", "@v3.0", "@main"], "", "@v3.0"))
def test_an_hf_url_is_pinned_like_a_name(hub: Hub, tmp_path: Path, revision: str) -> None:
    """hf://datasets/owner/name[@revision], as name or as root, is a pinned repo as well."""
    commit = hub.add_repo("lab/cups").commit(FIRST, tags=["v3.0"])
    url = f"hf://datasets/lab/cups{revision}"
    spellings: list[dict[str, Any]] = [{"repo_id": url}, {"repo_id": "mine", "root": url}]

    for names in spellings:
        found = open_metadata(hub.url, tmp_path, **names)
        assert (found["revision"], found["fingerprint"]) == (commit, fingerprint(FIRST))


def test_a_private_repo_needs_its_token_for_rows_too(hub: Hub, tmp_path: Path) -> None:
    """Without the token the repo is not there; with it, meta/ and everything else is read."""
    hub.add_repo("lab/secret", token="hf_key").commit(FIRST, tags=["v3.0"])
    opened = partial(open_metadata, hub.url, tmp_path, repo_id="lab/secret", read=DATA)

    assert "private and no token grants access" in opened()["message"]
    assert opened(token="hf_key")["sha256"] == sha256(FIRST / DATA)


@pytest.mark.parametrize(
    ("tags", "wanted", "error", "message"),
    [
        ([], None, "CompatibilityError", "no version tag at all (found main)"),
        (["v2.0", "v2.1"], "v3.0", "BackwardCompatibilityError", "Pass revision='v2.1'"),
        (["v1.6"], None, "BackwardCompatibilityError", "has version v1.6"),
        (["v3.2", "v3.1"], None, "ForwardCompatibilityError", "newer than the v3.0"),
        (["v4.0"], "v3.0", "ForwardCompatibilityError", "version v4.0"),
    ],
)
def test_repos_without_a_usable_version_are_refused(
    hub: Hub, tmp_path: Path, tags: list[str], wanted: str | None, error: str, message: str
) -> None:
    """Untagged, older and newer repos are told apart before anything is downloaded."""
    hub.add_repo("lab/cups").commit(FIRST, tags=tags)
    found = open_metadata(hub.url, tmp_path, repo_id="lab/cups", revision=wanted)

    assert found["error"] == error
    assert message in found["message"]
    assert hub.downloads("lab/cups") == []


@pytest.mark.parametrize(
    ("tags", "chosen"),
    [
        (["v2.0", "v2.1", "v3.0"], "v3.0"),
        (["v2.0", "v2.1", "v1.6"], "v2.1"),
        (["v2.0", "v3.1"], "v2.0"),
    ],
)
def test_without_a_revision_the_newest_readable_version_is_taken(
    hub: Hub, tmp_path: Path, tags: list[str], chosen: str
) -> None:
    """v3.0, else v2.1, else v2.0, which the log says; offline too."""
    repo = hub.add_repo("lab/cups")
    commits = {}
    for tag in tags:
        made = copy_of("v21_images", tmp_path / tag)
        edit_info(made, lambda info, tag=tag: info.update(codebase_version=tag))  # type: ignore[misc]
        commits[tag] = repo.commit(FIRST if tag == "v3.0" else made, tags=[tag])
    found = open_metadata(hub.url, tmp_path / "home", repo_id="lab/cups")

    assert found["revision"] == commits[chosen]
    log = f"lab/cups has no revision v3.0; reading {chosen}"
    assert found["warnings"] == ([] if chosen == "v3.0" else [log])
    offline = open_metadata(hub.url, tmp_path / "home", repo_id="lab/cups", offline=True)
    assert offline["revision"] == commits[chosen]


def test_the_greatest_lower_minor_is_read_with_a_warning(hub: Hub, tmp_path: Path) -> None:
    """Without the exact version, the greatest one below it of the same major version serves."""
    repo = hub.add_repo("lab/cups")
    repo.commit(SECOND, tags=["v2.1"])
    commit = repo.commit(FIRST, tags=["v3.0"])
    repo.commit(SECOND, tags=["v3.9", "v4.0"])
    found = open_metadata(hub.url, tmp_path, repo_id="lab/cups", revision="v3.4")

    assert found["revision"] == commit
    assert found["warnings"] == ["lab/cups has no revision v3.4; reading v3.0"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"repo_id": "lab/none"}, "lab/none: no such dataset on the Hub (http://127.0.0.1"),
        ({"repo_id": "lab/cups", "revision": "side"}, "no revision 'side'"),
        ({"repo_id": "lab/cups", "revision": "0" * 40}, "no revision '0000"),
        ({"repo_id": "lab/empty"}, "meta/info.json: not found, so this is no LeRobot dataset"),
        ({"repo_id": "lab/cups/top"}, "'lab/cups/top' is not a Hub dataset name (owner/name)"),
        ({"repo_id": "lab/cups", "offline": True}, "unset HF_HUB_OFFLINE"),
        ({"repo_id": "x", "root": "hf://buckets/lab/none"}, "none/meta/info.json: not found"),
    ],
)
def test_what_is_not_there_is_named(
    hub: Hub, tmp_path: Path, arguments: dict[str, Any], message: str
) -> None:
    """A missing repo, revision, file or cache entry is an error that says which and what to do."""
    (tmp_path / "readme").mkdir()
    (tmp_path / "readme" / "README.md").write_text("Nothing here yet.")
    hub.add_repo("lab/cups").commit(FIRST, tags=["v3.0"])
    hub.add_repo("lab/empty").commit(tmp_path / "readme", tags=["v3.0"])
    found = open_metadata(hub.url, tmp_path / "home", **arguments)

    assert found["error"] == "MetadataError"
    assert message in found["message"]


@pytest.mark.parametrize(
    "names",
    long_except(
        [{"repo_id": "lab/cups"}, {"repo_id": "x", "root": "hf://buckets/lab/cups"}],
        {"repo_id": "lab/cups"},
    ),
)
def test_a_hub_out_of_reach_is_an_error_with_its_address(
    tmp_path: Path, names: dict[str, Any]
) -> None:
    """Nothing cached and no Hub: the error names the dataset and the cure, not only the socket."""
    found = open_metadata(UNREACHABLE, tmp_path, **names)

    assert found["error"] == "MetadataError"
    assert "lab/cups" in found["message"]
    assert "Check the" in found["message"]


def test_a_bucket_is_read_where_it_lies(hub: Hub, tmp_path: Path) -> None:
    """hf://buckets/... has no versions and no cache: meta/ is read, rows are read from there."""
    hub.add_bucket("lab/cups", FIRST)
    opened = partial(open_metadata, hub.url, tmp_path, repo_id="x", root="hf://buckets/lab/cups")

    found = opened()
    assert found["fingerprint"] == fingerprint(FIRST)
    assert found["url"] == "hf://buckets/lab/cups"
    assert sorted(hub.downloads("lab/cups")) == meta_files(FIRST)
    assert opened(read=DATA)["sha256"] == sha256(FIRST / DATA)
