# SPDX-License-Identifier: Apache-2.0
"""`robostream bench`: measure one part, print a table, write the JSON."""

from __future__ import annotations

import argparse
from pathlib import Path

from robostream.bench import (
    BENCHMARKS,
    COMMANDS,
    ensure_writable,
    load_benchmark,
    load_command,
    write_json,
)
from robostream.errors import SelectionError

EXAMPLES = """\
  robostream bench all             every benchmark at its usual size
  robostream bench all --quick     smaller, for a first look
  robostream bench loader --workers 1 2 4 8 16 --only single sarm
  robostream bench stream --repo_id me/my_dataset --root ./my-dataset --mode sarm
"""


# The defaults of flags that several benchmarks have.
_USUAL = {
    "gpu": {"workers": "1, 2, 4 and so on up to the cores", "seconds": "6"},
    "loader": {"workers": "the cores", "seconds": "two whole epochs"},
}
# The flags that a benchmark takes beyond --quick and --out.
_OPTIONS = {
    "gpu": ("parts", "workers", "seconds"),
    "loader": ("workers", "only", "rounds", "seconds", "plain", "cold"),
}


# The modules that define a command's flags; they import no torch.
_LIGHT = {"stream": "stream_settings", "report": "report"}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `robostream bench`."""
    cases = parser.add_subparsers(dest="case", metavar="CASE", required=True)
    for name, title in (BENCHMARKS | {"all": "all of the above, one after the other"}).items():
        _configure_benchmark(cases.add_parser(name, help=title, description=_sentence(title)), name)
    for name, title in COMMANDS.items():
        command = cases.add_parser(name, help=title, description=_sentence(title))
        if name in _LIGHT:
            load_command(_LIGHT[name]).configure(command)
        else:
            _configure_comparison(command, name)


def run(args: argparse.Namespace) -> int:
    """Run the benchmark."""
    if args.case in COMMANDS:
        return int(load_command(args.case).run(args))
    repo = getattr(args, "repo", None)
    if repo is not None and args.quick:
        raise SelectionError("--repo publishes figures of whole datasets; leave out --quick")
    ensure_writable(args.out)
    for case in _all() if args.case == "all" else (args.case,):
        print(f"\n== {case}: {BENCHMARKS[case]}", flush=True)
        options = {name: getattr(args, name) for name in _OPTIONS.get(args.case, ())}
        path = args.out / f"{case}.json"
        figures = load_benchmark(case)(quick=args.quick, **options)
        write_json(path, figures)
        print(f"written to {path}", flush=True)
        if repo is not None:
            load_benchmark(case, "publish_figures")(repo, figures)
    return 0


def _all() -> list[str]:
    """Return the benchmarks that this machine can run."""
    import torch

    return [case for case in BENCHMARKS if case != "gpu" or torch.cuda.is_available()]


def _sentence(title: str) -> str:
    return f"{title[0].upper()}{title[1:]}."


def _add_out(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--out", type=Path, default=Path("bench-results"), help="folder of the JSON (%(default)s)"
    )


def _configure_benchmark(parser: argparse.ArgumentParser, name: str) -> None:
    parser.add_argument("--quick", action="store_true", help="smaller inputs, fewer repeats")
    _add_out(parser)
    if name == "gpu":
        parts = ("uploads", "h264", "hevc")
        parser.add_argument(
            "--parts",
            nargs="+",
            choices=parts,
            default=parts,
            help="what to measure: uploads, and the codecs that NVDEC decodes (all)",
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
        "--seconds", type=float, default=0.0, help=f"time limit of a run ({usual['seconds']})"
    )
    parser.add_argument(
        "--repo", type=Path, help="a checkout whose docs to refresh; not with --quick"
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
        help="leave memory untouched; otherwise as much as decoded frames may take is touched "
        "before each run, so that a virtual machine has it",
    )


def _configure_comparison(parser: argparse.ArgumentParser, name: str) -> None:
    """Add the arguments of `bench suite` and `bench peers`."""
    parser.add_argument("--rounds", type=int, default=3, help="of each row (%(default)s)")
    if name == "peers":
        parser.add_argument("--seconds", type=float, default=5.0, help="of each run (%(default)s)")
        parser.add_argument("--workers", type=int, help="processes of each loader (the cores)")
        parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="these loaders")
        cases = "these cases: av1-single, ..."
        parser.add_argument("--events", nargs="+", default=[], metavar="NAME", help=cases)
    _add_out(parser)
    parser.add_argument("--repo", type=Path, help="a checkout whose docs to refresh")
