# SPDX-License-Identifier: Apache-2.0
"""`robostream bench`: measure one part, print a table, write the JSON."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from robostream.bench import (
    BENCHMARKS,
    COMMANDS,
    ensure_writable,
    load_module,
    run_benchmark,
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
# Their modules have `configure(parser)` and `run(args)`, and import no torch for their flags.
_OWN = ("stream", "report")
# The flags that a benchmark takes beyond --out and --repo, which it does not see.
_QUICK = ("quick",)
_OPTIONS = {
    "gpu": ("quick", "parts", "workers", "seconds"),
    "loader": ("quick", "workers", "only", "rounds", "seconds", "plain", "cold"),
    "peers": ("rounds", "seconds", "workers", "only", "events"),
    "suite": ("rounds", "out"),
}
# The defaults in words.
_WORKERS = {"gpu": "1, 2, 4 and so on up to the cores", "loader": "the cores"}
_SECONDS = {"gpu": "6", "loader": "two whole epochs"}
# Benchmarks with figures in the docs.
_PUBLISHED = (*_OPTIONS, "versions")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `robostream bench`."""
    cases = parser.add_subparsers(dest="case", metavar="CASE", required=True)
    titles = BENCHMARKS | {"all": "all of the above, one after the other"} | COMMANDS
    for name, title in titles.items():
        sentence = f"{title[0].upper()}{title[1:]}."
        command = cases.add_parser(name, help=title, description=sentence)
        if name in _OWN:
            load_module(name).configure(command)
        else:
            _configure_benchmark(command, name)


def run(args: argparse.Namespace) -> int:
    """Run the benchmark."""
    if args.case in _OWN:
        return int(load_module(args.case).run(args))
    repo = getattr(args, "repo", None)
    if repo is not None and getattr(args, "quick", False):
        raise SelectionError("--repo publishes figures of whole datasets; leave out --quick")
    ensure_writable(args.out)
    if repo is not None:
        load_module(args.case).PUBLICATION.prepare()
    cases = [args.case]
    if args.case == "all":  # those that this machine can run
        import torch

        cases = [case for case in BENCHMARKS if case != "gpu" or torch.cuda.is_available()]
    for case in cases:
        options = {name: getattr(args, name) for name in _OPTIONS.get(args.case, _QUICK)}
        figures, tables = run_benchmark(case, **options)
        # Everything is written before anything is printed: `... | head` loses no figures.
        path = args.out / f"{case}.json"
        write_json(path, figures)
        if repo is not None:
            load_module(case).PUBLICATION.publish(repo, figures)
        title = f"\n== {case}: {BENCHMARKS[case]}\n" if case in BENCHMARKS else ""
        print(f"{title}{tables}\nwritten to {path}", flush=True)
    return 0


def _configure_benchmark(parser: argparse.ArgumentParser, name: str) -> None:
    options = _OPTIONS.get(name, _QUICK)
    add, add_typed = parser.add_argument, partial(add_option, parser)
    if "quick" in options:
        add("--quick", action="store_true", help="smaller inputs, fewer repeats")
    add_typed("--out", Path, Path("bench-results"), "folder of the JSON")
    if name in _PUBLISHED:
        but = "; not with --quick" if "quick" in options else ""
        add("--repo", type=Path, help=f"a checkout whose docs to refresh{but}")
    if name in ("peers", "suite"):
        add_typed("--rounds", int, 3, "runs of each row")
    if name == "peers":
        add_typed("--seconds", float, 5.0, "length of a run")
        add_typed("--workers", int, None, "processes of each loader (the cores)")
        for flag, what in (("only", "loaders"), ("events", "cases: av1-single, ...")):
            several = {"nargs": "+", "metavar": "NAME"}
            add_typed(f"--{flag}", str, [], f"measure only these {what}", **several)
    if name == "gpu":
        parts = ("uploads", "ranks", "h264", "hevc")
        parts_help = (
            "what to measure: uploads, ranks that share a GPU, codecs that NVDEC decodes (all)"
        )
        add("--parts", nargs="+", choices=parts, default=parts, help=parts_help)
    if name in _WORKERS:
        workers_help = f"worker processes, one run for each number ({_WORKERS[name]})"
        add("--workers", type=int, nargs="+", default=[], metavar="N", help=workers_help)
        seconds_help = f"time limit of a run ({_SECONDS[name]})"
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
