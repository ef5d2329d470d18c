# SPDX-License-Identifier: Apache-2.0
"""`robostream diagnose`: check whether an episode decodes, and if not, why and what to do."""

from __future__ import annotations

import argparse
import sys

from robostream.assemble import DatasetLocation
from robostream.cli.arguments import DATASET_HELP
from robostream.errors import SelectionError
from robostream.tools import diagnose_episode, diagnosis_json, diagnosis_text

EXAMPLES = """\
  robostream diagnose lerobot/pusht
  robostream diagnose ./my-dataset --episode 7 --camera observation.images.top
  robostream diagnose s3://bucket/my-dataset --json
exit codes: 0 the episode decodes, 1 it does not, 2 wrong usage
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `robostream diagnose`."""
    add = parser.add_argument
    add("dataset", metavar="DATASET", help=DATASET_HELP)
    add("--episode", type=int, default=0, help="the episode to decode (%(default)s)")
    add(
        "--camera",
        dest="cameras",
        nargs="+",
        action="extend",
        metavar="KEY",
        help="the cameras to check (all)",
    )
    add("--revision", help="branch, tag or commit on the Hub")
    add("--root", help="folder or URL of the dataset, if DATASET is only its name")
    add("--data-files-root", metavar="URL", help="where data/ and videos/ are, if not beside meta/")
    add(
        "--video-decode-device",
        choices=("cpu", "cuda"),
        default="cpu",
        help="cuda: the GPU must be able to decode the videos too (%(default)s)",
    )
    add("--json", action="store_true", help="print all findings as JSON")


def run(args: argparse.Namespace) -> int:
    """Print the diagnosis; exit code 1 if the episode does not decode."""
    location = DatasetLocation(args.dataset, args.root, args.revision, args.data_files_root)
    try:
        diagnosis = diagnose_episode(
            location,
            episode=args.episode,
            cameras=args.cameras,
            device=args.video_decode_device,
        )
    except SelectionError as error:
        print(f"robostream diagnose: {error}", file=sys.stderr)
        return 2
    print(diagnosis_json(diagnosis) if args.json else diagnosis_text(diagnosis))
    return 0 if diagnosis.decodes else 1
