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
    load_module,
    write_json,
)
from robostream.cli.arguments import add_option
from robostream.errors import SelectionError

EXAMPLES = """\
  robostream bench all             every benchmark at its usual size
  robostream bench all --quick     smaller, for a first look
  robostream bench loader --workers 1 2 4 8 16 --only single sarm
  robostream bench stream --repo_id me/my_dataset --root ./my-dataset --mode sarm
"""


# The defaults of flags that several benchmarks have, in words.
_USUAL = {
    "gpu": {"workers": "1, 2, 4 and so on up to the cores", "seconds": "6"},
    "loader": {"workers": "the cores", "seconds": "two whole epochs"},
}
# The flags that a benchmark takes beyond --quick and --out.
_OPTIONS = {
    "gpu": ("parts", "workers", "seconds"),
    "loader": ("workers", "only", "rounds", "seconds", "plain", "cold"),
}
# Benchmarks with figures in the docs.
_PUBLISHED = (*_USUAL, "versions")

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
            load_module(_LIGHT[name]).configure(command)
        else:
            _configure_comparison(command, name)


def run(args: argparse.Namespace) -> int:
    """Run the benchmark."""
    if args.case in COMMANDS:
        return int(load_module(args.case).run(args))
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
            load_module(case).PUBLICATION.publish(repo, figures)
    return 0


def _all() -> list[str]:
    """Return the benchmarks that this machine can run."""
    import torch

    return [case for case in BENCHMARKS if case != "gpu" or torch.cuda.is_available()]


def _sentence(title: str) -> str:
    return f"{title[0].upper()}{title[1:]}."


def _add_out(parser: argparse.ArgumentParser) -> None:
    add_option(parser, "--out", Path, Path("bench-results"), "folder of the JSON")


def _configure_benchmark(parser: argparse.ArgumentParser, name: str) -> None:
    parser.add_argument("--quick", action="store_true", help="smaller inputs, fewer repeats")
    _add_out(parser)
    add = parser.add_argument
    if name == "gpu":
        parts = ("uploads", "h264", "hevc")
        parts_help = "what to measure: uploads, and the codecs that NVDEC decodes (all)"
        add("--parts", nargs="+", choices=parts, default=parts, help=parts_help)
    if name in _PUBLISHED:
        add("--repo", type=Path, help="a checkout whose docs to refresh; not with --quick")
    if name not in _USUAL:
        return
    workers_help = f"worker processes, one run for each number ({_USUAL[name]['workers']})"
    add("--workers", type=int, nargs="+", default=[], metavar="N", help=workers_help)
    seconds_help = f"time limit of a run ({_USUAL[name]['seconds']})"
    add("--seconds", type=float, default=0.0, help=seconds_help)
    if name == "loader":
        add("--only", nargs="+", default=[], metavar="CASE", help="measure only these rows")
        add("--rounds", type=int, help="how often each row is measured")
        add("--no-plain", dest="plain", action="store_false", help="leave out the plain loader")
        cold_help = (
            "do not touch memory before a run; by default, a run first touches as much memory as "
            "decoded frames may take, so that a virtual machine has it"
        )
        add("--cold", action="store_true", help=cold_help)


def _configure_comparison(parser: argparse.ArgumentParser, name: str) -> None:
    """Add the arguments of `bench suite` and `bench peers`."""
    add_option(parser, "--rounds", int, 3, "runs of each row")
    if name == "peers":
        several = {"nargs": "+", "metavar": "NAME"}
        add_option(parser, "--seconds", float, 5.0, "length of a run")
        add_option(parser, "--workers", int, None, "processes of each loader (the cores)")
        add_option(parser, "--only", str, [], "measure only these loaders", **several)
        add_option(
            parser, "--events", str, [], "measure only these cases: av1-single, ...", **several
        )
    _add_out(parser)
    parser.add_argument("--repo", type=Path, help="a checkout whose docs to refresh")
