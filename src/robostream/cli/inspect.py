# SPDX-License-Identifier: Apache-2.0
"""`robostream inspect`: a page of a dataset, or a contact sheet of one of its episodes."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from robostream.assemble import DatasetLocation, SampleOptions, open_dataset
from robostream.cli.arguments import add_dataset, add_option, fail, natural
from robostream.errors import SelectionError
from robostream.tools import (
    inspect_html,
    save_result,
    save_sheet,
    sheet_of,
    view_dataset,
    view_episode,
    viewer_command,
)

EXAMPLES = """\
  robostream inspect ./my-dataset --html page.html
  robostream inspect lerobot/pusht --episode 7 --html page.html --png sheet.png
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `robostream inspect`."""
    add_dataset(parser)
    add_option(parser, "--episode", natural, 0, "the episode whose frames and curves are shown")
    several = {"nargs": "+", "metavar": "KEY", "dest": "camera_keys"}
    add_option(parser, "--cameras", str, None, "only these cameras (all)", **several)
    page_help = "write one HTML file that holds its images and fetches nothing"
    parser.add_argument("--html", type=Path, metavar="PAGE", help=page_help)
    sheet_help = "write a contact sheet of the episode, a row for each camera"
    parser.add_argument("--png", type=Path, metavar="SHEET", help=sheet_help)


def run(args: argparse.Namespace) -> int:
    """Write the page and the sheet; exit code 1 if a camera cannot be read."""
    if not (args.html or args.png):
        args.parser.error("want --html PAGE, --png SHEET or both: say what to make")
    location = DatasetLocation(args.dataset, revision=args.revision)
    try:
        dataset = open_dataset(location, SampleOptions(camera_keys=args.camera_keys))
        view = view_episode(dataset, args.episode)
        if args.png:
            save_sheet(args.png, sheet_of(dataset, view))
    except SelectionError as error:
        return fail(args, error, 2)
    if args.html:
        page = inspect_html(dataset.meta, view, view_dataset(dataset))
        save_result(args.html, page.encode())
    for path in filter(None, (args.html, args.png)):
        print(f"written to {path}")
    if command := viewer_command(dataset.meta, args.episode):
        print(f"LeRobot's own viewer: {shlex.join(command)}")
    return 1 if any(isinstance(strip, str) for strip in view.strips.values()) else 0
