# SPDX-License-Identifier: Apache-2.0
"""`robostream env`: what to paste into an issue report."""

from __future__ import annotations

import json

import pytest

from robostream import __version__
from robostream.cli.machine import describe_environment
from robostream.cli.main import main


def test_versions_machine_and_settings_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """The text and the JSON have the same entries."""
    assert main(["env", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert main(["env"]) == 0
    text = capsys.readouterr().out

    assert found["robostream"] == __version__
    assert found["decoders"]["AV1"] == "libdav1d"
    assert found["cores"] >= 1
    assert [line.split("  ")[0] for line in text.splitlines()] == list(found)


def test_credentials_are_not_printed() -> None:
    """Of variables that may hold a secret, only the name is printed."""
    secret = "hf_s3cr3t"
    variables = {
        "HF_TOKEN": secret,
        "HF_ENDPOINT": f"https://me:{secret}@hub",
        "AWS_SECRET_ACCESS_KEY": secret,
        "AWS_ENDPOINT_URL": f"https://me:{secret}@s3",
        "ROBOSTREAM_CACHE": "/nvme/cache",
        "PATH": "/bin",
    }
    found = describe_environment(variables)

    assert secret not in json.dumps(found)
    assert found["variables"]["HF_TOKEN"] == "set"
    assert found["variables"]["ROBOSTREAM_CACHE"] == "/nvme/cache"
    assert "PATH" not in found["variables"]
