# SPDX-License-Identifier: Apache-2.0
"""`robostream diagnose`: look closely at one episode: the doctor's checks, with all they saw."""

from __future__ import annotations

import argparse
import json

from robostream.assemble import DatasetLocation
from robostream.cli.arguments import add_dataset, add_json, add_option, fail, text_width
from robostream.errors import SelectionError
from robostream.tools import look_closely, look_json, look_text

EXAMPLES = """\
  robostream diagnose lerobot/pusht
  robostream diagnose ./my-dataset --episode 7 --camera observation.images.top
  robostream diagnose s3://bucket/my-dataset --json
Exit codes: 0 the episode decodes, 1 it does not, 2 wrong usage
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `robostream diagnose`."""
    add_dataset(parser)
    add_option(parser, "--episode", int, 0, "the episode to decode")
    several = {"dest": "cameras", "nargs": "+", "action": "extend", "metavar": "KEY"}
    add_option(parser, "--camera", str, None, "the cameras to look at (all)", **several)
    root_help = "folder or URL of the dataset, if DATASET is only its name"
    parser.add_argument("--root", help=root_help)
    files_help = "where data/ and videos/ are, if not beside meta/"
    parser.add_argument("--data-files-root", metavar="URL", help=files_help)
    cuda_help = "cuda: the GPU must be able to decode the videos too"
    add_option(parser, "--video-decode-device", str, "cpu", cuda_help, choices=("cpu", "cuda"))
    add_json(parser, "all facts and findings")


def run(args: argparse.Namespace) -> int:
    """Print what was seen; exit code 1 if the episode does not decode."""
    location = DatasetLocation(args.dataset, args.root, args.revision, args.data_files_root)
    device = args.video_decode_device
    try:
        look = look_closely(location, episode=args.episode, cameras=args.cameras, device=device)
    except SelectionError as error:
        return fail(args, error, 2)
    print(
        json.dumps(look_json(look), indent=2) if args.json else look_text(look, width=text_width())
    )
    return 0 if look.decodes else 1
