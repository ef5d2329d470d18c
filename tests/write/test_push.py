# SPDX-License-Identifier: Apache-2.0
"""A dataset is pushed to the loopback Hub by huggingface_hub itself, and read from there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from huggingface_hub import constants

from robostream import LeRobotDataset, LeRobotDatasetMetadata
from robostream.errors import (
    AccessDeniedError,
    MissingFileError,
    ModeError,
    SelectionError,
    StorageError,
)
from tests.fixture_datasets import copy_of
from tests.meta.hub_client import open_metadata
from tests.servers.hub import Hub
from tests.servers.hub_content import read_files

# huggingface_hub uploads with an argument of httpx that is out of date.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=<...>':DeprecationWarning")

FEATURES = {"x": {"dtype": "float32", "shape": (1,), "names": None}}


@pytest.fixture(autouse=True)
def endpoint(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pushes go to the loopback Hub, by git LFS's protocol: Xet's needs servers of its own."""
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    monkeypatch.setenv("HF_TOKEN", "")
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))


def push(root: Path, repo_id: str = "lab/cups", **arguments: Any) -> None:
    """Push the dataset of a folder."""
    LeRobotDataset(repo_id, root).push_to_hub(**arguments)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A dataset with several data and video files."""
    return copy_of("av1_multifile", tmp_path)


def pushed(hub: Hub, branch: str = "main") -> dict[str, bytes]:
    """The content of the files of a branch."""
    repo = hub.repos["lab/cups"]
    return {path: blob.content for path, blob in repo.commits[repo.branches[branch]].items()}


def local(root: Path) -> dict[str, bytes]:
    """The content of the files of a folder; not what huggingface_hub notes of its uploads."""
    files = {path: blob.content for path, blob in read_files(root).items()}
    return {path: content for path, content in files.items() if not path.startswith(".cache")}


def card(hub: Hub, branch: str = "main") -> dict[str, object]:
    """The metadata of the dataset's card."""
    text = pushed(hub, branch)["README.md"].decode()
    found: dict[str, object] = yaml.safe_load(text.split("---\n")[1])
    return found


def test_a_pushed_dataset_is_read_from_the_hub(hub: Hub, root: Path, tmp_path: Path) -> None:
    """All files are there, with a card; readers find the commit by the tag of its version."""
    (root / "images" / "top").mkdir(parents=True)
    (root / "images" / "top" / "frame-000000.png").write_bytes(b"waits to be encoded")
    push(root)

    repo = hub.repos["lab/cups"]
    files = {path: data for path, data in local(root).items() if not path.startswith("images/")}
    assert {path: data for path, data in pushed(hub).items() if path != "README.md"} == files
    assert repo.tags == {"v3.0": repo.branches["main"]}
    assert card(hub) == {
        "license": "apache-2.0",
        "task_categories": ["robotics"],
        "tags": ["LeRobot"],
        "configs": [{"config_name": "default", "data_files": "data/*/*.parquet"}],
    }
    found = open_metadata(hub.url, tmp_path / "reader", repo_id="lab/cups")
    assert found["revision"] == repo.branches["main"]
    assert found["fingerprint"] == LeRobotDatasetMetadata("lab/cups", root).fingerprint


def test_a_second_push_sends_what_is_new_and_moves_the_tag(hub: Hub, root: Path) -> None:
    """Large files that the Hub has are not sent again."""
    push(root)
    first, sent = hub.repos["lab/cups"].tags["v3.0"], hub.kinds()["lfs-upload"]
    (root / "notes.txt").write_text("two cups are chipped")
    push(root)

    repo = hub.repos["lab/cups"]
    assert pushed(hub)["notes.txt"] == b"two cups are chipped"
    assert repo.tags == {"v3.0": repo.branches["main"]}
    assert repo.tags["v3.0"] != first
    assert hub.kinds()["lfs-upload"] == sent > 0


def test_the_arguments_of_a_push(hub: Hub, root: Path) -> None:
    """Branch, privacy, card, tag and files are as asked."""
    chosen = {"branch": "next", "tags": ["towels"], "license": "mit", "private": True}
    push(root, **chosen, tag_version=False, push_videos=False)

    repo = hub.repos["lab/cups"]
    assert repo.is_private
    assert repo.tags == {}
    assert pushed(hub) == {}
    assert card(hub, "next")["tags"] == ["LeRobot", "towels"]
    assert card(hub, "next")["license"] == "mit"
    without = {path for path in local(root) if not path.startswith("videos/")}
    assert set(pushed(hub, "next")) == without | {"README.md"}
    push(root, branch="next", allow_patterns="videos/*")
    assert set(pushed(hub, "next")) == set(local(root)) | {"README.md"}
    assert repo.tags == {"v3.0": repo.branches["next"]}


def test_a_readme_of_ones_own_is_the_card(hub: Hub, root: Path) -> None:
    """It is pushed as it is; asking for a card besides is an error."""
    (root / "README.md").write_text("---\nlicense: cc0-1.0\n---\n# My cups\n")

    with pytest.raises(SelectionError, match="as it is, so tags and license have no effect"):
        push(root, tags=["towels"])
    assert not hub.repos
    push(root)
    assert pushed(hub) == local(root)


def test_a_partial_copy_is_not_pushed(hub: Hub, root: Path) -> None:
    """As of a dataset whose videos were not downloaded: the first missing file is named."""
    video = sorted(root.rglob("*.mp4"))[0]
    video.unlink()
    with pytest.raises(MissingFileError, match=f"the first is {video.relative_to(root)}"):
        push(root)
    assert not hub.repos


def test_a_token_without_the_right_is_an_error(hub: Hub, root: Path) -> None:
    """It says what to do, without the token; with the right one the push succeeds."""
    hub.write_token = "hf_may_write"
    with pytest.raises(AccessDeniedError, match="The token may not write here") as caught:
        push(root, token="hf_may_read")

    assert "hf_may" not in str(caught.value)
    push(root, token="hf_may_write")


def test_a_name_that_is_none_is_an_error(root: Path) -> None:
    """A path is no name on the Hub."""
    with pytest.raises(StorageError, match=r"'some/where/else' is not a Hub dataset name"):
        push(root, repo_id="some/where/else")


def test_only_a_finished_local_dataset_is_pushed(tmp_path: Path) -> None:
    """Neither one that is being recorded, nor one behind a URL."""
    recording = LeRobotDataset.create("lab/cups", 10, FEATURES, tmp_path / "new")
    recording.add_frame({"x": np.zeros(1, np.float32), "task": "rest"})
    with pytest.raises(ModeError, match=r"call finalize\(\) before pushing"):
        recording.push_to_hub()
    recording.save_episode()
    recording.finalize()
    remote = LeRobotDataset("lab/cups", f"local://{tmp_path / 'new'}")
    with pytest.raises(ModeError, match="only a dataset in a local folder can be pushed"):
        remote.push_to_hub()


def test_hf_dataset_names_what_to_use_instead(root: Path) -> None:
    """Code that asks whether there is one gets an answer, code that needs it a hint."""
    dataset = LeRobotDataset("lab/cups", root)

    assert not hasattr(dataset, "hf_dataset")
    with pytest.raises(AttributeError, match=r"select_columns.*get_raw_item.*meta\.episodes"):
        dataset.hf_dataset  # noqa: B018
