# SPDX-License-Identifier: Apache-2.0
"""`robostream bench`: measure one part, print a table, keep the JSON."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from robostream.bench import CASES, PROGRAMS, ensure_writable, load_case, load_program, write_json
from robostream.errors import SelectionError

EXAMPLES = """\
  robostream bench all             every benchmark at its usual size
  robostream bench all --quick     smaller, for a first look
  robostream bench loader --workers 1 2 4 8 16 --only single sarm
  robostream bench stream --repo_id me/my_dataset --root ./my-dataset --mode sarm
"""


# What is measured if nothing is said.
_USUAL = {
    "gpu": {"workers": "1, 2, 4 and so on up to the cores", "seconds": "6"},
    "loader": {"workers": "the cores", "seconds": "two whole epochs"},
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `robostream bench`."""
    cases = parser.add_subparsers(dest="case", metavar="CASE", required=True)
    for name, title in (CASES | {"all": "everything above, one after the other"}).items():
        _configure_case(cases.add_parser(name, help=title, description=_sentence(title)), name)
    for name, title in PROGRAMS.items():
        program = cases.add_parser(name, help=title, description=_sentence(title))
        load_program(name).configure(program)


def run(args: argparse.Namespace) -> int:
    """Measure what was asked for."""
    if args.case in PROGRAMS:
        return int(load_program(args.case).run(args))
    repo = getattr(args, "repo", None)
    if repo is not None and args.quick:
        raise SelectionError("--repo keeps figures of whole datasets; leave out --quick")
    ensure_writable(args.out)
    for case in _all() if args.case == "all" else (args.case,):
        print(f"\n== {case}: {CASES[case]}", flush=True)
        options: dict[str, Any] = {}
        if args.case == "loader":
            given = ("workers", "only", "rounds", "seconds", "plain", "cold")
            options = {name: getattr(args, name) for name in given}
        if args.case == "gpu":
            options = {name: getattr(args, name) for name in ("parts", "workers", "seconds")}
        path = args.out / f"{case}.json"
        figures = load_case(case).run(quick=args.quick, **options)
        write_json(path, figures)
        print(f"kept in {path}", flush=True)
        if repo is not None:
            load_case(case).publish(repo, figures)
    return 0


def _all() -> list[str]:
    """Return the cases that this machine can run."""
    import torch

    return [case for case in CASES if case != "gpu" or torch.cuda.is_available()]


def _sentence(title: str) -> str:
    return f"{title[0].upper()}{title[1:]}."


def _configure_case(parser: argparse.ArgumentParser, name: str) -> None:
    parser.add_argument("--quick", action="store_true", help="smaller inputs, fewer repeats")
    parser.add_argument(
        "--out", type=Path, default=Path("bench-results"), help="folder for the JSON (%(default)s)"
    )
    if name == "gpu":
        parts = ("uploads", "h264", "hevc")
        parser.add_argument(
            "--parts",
            nargs="+",
            choices=parts,
            default=parts,
            help="what is measured: uploads, and what NVDEC decodes (all)",
        )
    if name not in _USUAL:
        return
    usual = _USUAL[name]
    parser.add_argument(
        "--workers",
        type=int,
        nargs="+",
        default=[],
        metavar="N",
        help=f"worker processes, one run for each number ({usual['workers']})",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=0.0,
        help=f"measure so long at most ({usual['seconds']})",
    )
    parser.add_argument(
        "--repo", type=Path, help="a checkout whose docs are to be refreshed; not with --quick"
    )
    if name == "loader":
        _configure_loader(parser)


def _configure_loader(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", nargs="+", default=[], metavar="CASE", help="these rows only")
    parser.add_argument("--rounds", type=int, help="how often each row is measured")
    parser.add_argument(
        "--no-plain", dest="plain", action="store_false", help="leave out the plain loader"
    )
    parser.add_argument(
        "--cold",
        action="store_true",
        help="leave memory as it is; else as much as decoded pictures may take is touched before "
        "each run, so that a virtual machine has it",
    )
