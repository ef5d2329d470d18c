# SPDX-License-Identifier: Apache-2.0
"""`robostream diagnose`: check whether an episode decodes, and if not, why and what to do."""

from __future__ import annotations

import argparse
import sys

from robostream.assemble import DatasetLocation
from robostream.cli.arguments import add_dataset, add_json, add_option
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
    add_dataset(parser)
    add_option(parser, "--episode", int, 0, "the episode to decode")
    several = {"dest": "cameras", "nargs": "+", "action": "extend", "metavar": "KEY"}
    add_option(parser, "--camera", str, None, "the cameras to check (all)", **several)
    root_help = "folder or URL of the dataset, if DATASET is only its name"
    parser.add_argument("--root", help=root_help)
    files_help = "where data/ and videos/ are, if not beside meta/"
    parser.add_argument("--data-files-root", metavar="URL", help=files_help)
    cuda_help = "cuda: the GPU must be able to decode the videos too"
    add_option(parser, "--video-decode-device", str, "cpu", cuda_help, choices=("cpu", "cuda"))
    add_json(parser, "all findings")


def run(args: argparse.Namespace) -> int:
    """Print the diagnosis; exit code 1 if the episode does not decode."""
    location = DatasetLocation(args.dataset, args.root, args.revision, args.data_files_root)
    device = args.video_decode_device
    try:
        found = diagnose_episode(
            location, episode=args.episode, cameras=args.cameras, device=device
        )
    except SelectionError as error:
        print(f"robostream diagnose: {error}", file=sys.stderr)
        return 2
    print(diagnosis_json(found) if args.json else diagnosis_text(found))
    return 0 if found.decodes else 1
