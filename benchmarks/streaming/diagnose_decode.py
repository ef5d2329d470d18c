# SPDX-License-Identifier: Apache-2.0
"""Diagnose the decoding of an episode; `robostream diagnose` with LeRobot's script's flags."""

from __future__ import annotations

import argparse
import sys

from robostream.cli.main import main


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repo_id", required=True, help="Hub name, folder or fsspec URL")
    parser.add_argument("--root", help="folder or URL of the dataset; repo_id is then only a name")
    parser.add_argument("--data_files_root", help="where data/ and videos/ lie, if elsewhere")
    parser.add_argument("--revision", help="branch, tag or commit on the Hub")
    parser.add_argument("--video_decode_device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--episode", type=int, default=0)
    return parser.parse_args()


def command_of(args: argparse.Namespace) -> list[str]:
    """Return the robostream command that these flags mean."""
    command = ["diagnose", args.repo_id, "--episode", str(args.episode)]
    command += ["--video-decode-device", args.video_decode_device]
    for option in ("root", "data_files_root", "revision"):
        if (value := getattr(args, option)) is not None:
            command += [f"--{option.replace('_', '-')}", value]
    return command


if __name__ == "__main__":
    sys.exit(main(command_of(parse_args())))
