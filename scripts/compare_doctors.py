# SPDX-License-Identifier: Apache-2.0
"""Run `robostream doctor` and `lerobot-doctor` on the same broken and sound datasets.

Usage: `python scripts/compare_doctors.py LEROBOT_DOCTOR [--speed FOLDER]`, where LEROBOT_DOCTOR is
the command of `pip install lerobot-doctor==0.2.0`, in an environment of its own. It writes
benchmarks/results/doctor.json and the tables of docs/doctor.md. `--speed` also measures the default
level on a dataset of 10,000 episodes, which it makes in FOLDER unless it is there: locally, and
behind a proxy with 20 ms and 200 Mbit/s.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

REPO = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPO)]

RESULTS = REPO / "benchmarks/results/doctor.json"
PAGE = REPO / "docs/doctor.md"
LEVELS = ("default", "rows", "frames")
SPEED = "--episodes 10000 --distinct 8 --frames 60:120 --cameras 2 --size 64x64 --codec h264"
LATENCY_S, BITS_PER_S = 0.02, 200e6
Figures = dict[str, Any]


def ask_robostream(root: Path, level: str) -> dict[str, str]:
    """Return the verdict of each check that warns or fails."""
    from robostream.assemble import DatasetLocation
    from robostream.tools import DoctorOptions, examine_dataset

    place = LEVELS.index(level)
    options = DoctorOptions(reads_rows=place > 0, frames=float(place > 1), threads=2)
    found = examine_dataset(DatasetLocation(str(root)), options).findings
    verdicts = {finding.check.id: finding.verdict.name.lower() for finding in found}
    return {name: verdict for name, verdict in verdicts.items() if verdict not in ("ok", "note")}


def ask_lerobot_doctor(command: str, root: Path) -> list[str]:
    """Return the messages of lerobot-doctor that warn or fail."""
    done = subprocess.run(
        [command, "check", str(root), "--json"], capture_output=True, text=True, check=False
    )
    try:
        checks = json.loads(done.stdout)["checks"]
    except ValueError:
        return ["FAIL " + (done.stderr.strip().splitlines() or ["no output"])[-1]]
    messages = [message for check in checks for message in check["messages"]]
    return [f"{m['severity']} {m['message']}" for m in messages if m["severity"] != "PASS"]


def compare(command: str) -> Figures:
    """Return what both say of each broken dataset, and of sound ones."""
    from tests.fixture_datasets import ROOTS
    from tests.tools.doctor.broken import BROKEN, make_sound

    broken, sound = [], []
    with tempfile.TemporaryDirectory() as folder:
        whole = make_sound(Path(folder) / "recorded with robostream")
        usual = set(ask_lerobot_doctor(command, whole))
        for kind in BROKEN:
            root = Path(shutil.copytree(whole, Path(folder) / "broken"))
            kind.damage(root)
            theirs = [text for text in ask_lerobot_doctor(command, root) if text not in usual]
            ours = ask_robostream(root, kind.level)
            row = {"name": kind.name, "level": kind.level, "check": kind.check}
            broken.append(row | {"robostream": ours, "lerobot_doctor": theirs})
            shutil.rmtree(root)
        recoded = Path(folder) / "recoded to AV1"
        recode = ["recode", str(whole), str(recoded), "--codec", "libsvtav1"]
        subprocess.run([sys.executable, "-m", "robostream", *recode], check=True)
        for root in (whole, recoded, *ROOTS):
            ours, theirs = ask_robostream(root, "frames"), ask_lerobot_doctor(command, root)
            sound.append({"name": root.name, "robostream": ours, "lerobot_doctor": theirs})
    version = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
    return {"lerobot_doctor": version.stdout.split()[-1], "broken": broken, "sound": sound}


def measure_speed(root: Path) -> Figures:
    """Return seconds, CPU seconds, requests and bytes of the default level on a large dataset."""
    from robostream.testing import Script, serve_files, start_proxy

    if not root.exists():
        synth = ["synth", str(root), *SPEED.split()]
        subprocess.run([sys.executable, "-m", "robostream", *synth], check=True)
    command = [sys.executable, "-m", "robostream", "doctor", "--json"]
    local, found = run_timed([*command, str(root)])
    files = [path for path in root.rglob("*") if path.is_file()]
    figures = {
        "command": f"robostream synth DEST {SPEED}",
        "episodes": 10_000,
        "files": len(files),
        "dataset_bytes": sum(path.stat().st_size for path in files),
        "local": local,
        "findings": [f["id"] for f in found["findings"] if f["verdict"] in ("warning", "error")],
    }
    link = Script(latency_s=LATENCY_S, bytes_per_s=BITS_PER_S / 8)
    with serve_files(root) as server, start_proxy(server, link) as proxy:
        remote, _ = run_timed([*command, proxy.url])
        exchanges = proxy.journal()
    sent_bytes = sum(exchange.sent_bytes for exchange in exchanges)
    return figures | {"remote": remote | {"requests": len(exchanges), "bytes": sent_bytes}}


def run_timed(command: list[str]) -> tuple[Figures, Figures]:
    """Run a command in its own process; return its seconds and the JSON it prints."""
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    found = json.loads(done.stdout)
    return {"seconds": seconds, "cpu_s": cpu_s, "reading_s": found["seconds"]}, found


def tables(figures: Figures) -> dict[str, str]:
    """Return the blocks of the page, by their marks; those of figures that were measured. Pure."""
    found = {"doctor checks": "\n".join(_check_lines())}
    if "speed" in figures:
        found["doctor speed"] = "\n".join(_speed_lines(figures["speed"]))
    if "broken" in figures:
        found |= {"doctor broken": _broken_table(figures), "doctor sound": _sound_table(figures)}
    return found


def _check_lines() -> Iterator[str]:
    from robostream.tools.doctor.examine import CHECKS

    yield "| check | level | what holds for a sound dataset | why it matters |"
    yield "|---|---|---|---|"
    for one in CHECKS:
        yield f"| `{one.id}` | {one.item.level} | {one.title} | {one.why} |"


def _broken_table(figures: Figures) -> str:
    lines = ["| broken dataset | level | named by | lerobot-doctor |", "|---|---|---|---|"]
    for row in figures["broken"]:
        said = next(iter(sorted(row["lerobot_doctor"])), None)
        theirs = "not seen" if said is None else _shorten(said)
        lines.append(f"| {row['name']} | {row['level']} | `{row['check']}` | {theirs} |")
    seen = sum(bool(row["lerobot_doctor"]) for row in figures["broken"])
    total = len(figures["broken"])
    named = sum(row["check"] in row["robostream"] for row in figures["broken"])
    theirs = f"lerobot-doctor {figures['lerobot_doctor']}"
    summary = f"Of {total} kinds, `robostream doctor` names {named} and {theirs} sees {seen}."
    return "\n".join([summary, "", *lines])


def _shorten(text: str) -> str:
    text = re.sub(r"\S*/chunk-\d+/|/tmp/\S*/", "", " ".join(text.split())).replace("|", "/")
    return text if len(text) <= 70 else f"{text[:67]}..."


def _sound_table(figures: Figures) -> str:
    lines = ["| sound dataset | robostream | lerobot-doctor |", "|---|---|---|"]
    for row in figures["sound"]:
        ours = f"{len(row['robostream'])} alarms" if row["robostream"] else "none"
        failed = sum(text.startswith("FAIL") for text in row["lerobot_doctor"])
        warned = len(row["lerobot_doctor"]) - failed
        lines.append(f"| {row['name']} | {ours} | {failed} failures, {warned} warnings |")
    return "\n".join(lines)


def _speed_lines(speed: Figures) -> Iterator[str]:
    local, remote = speed["local"], speed["remote"]
    size, read = speed["dataset_bytes"] / 1e6, remote["bytes"] / 1e6
    names = ("seconds", "reading_s", "cpu_s")
    here, there = (" | ".join(f"{one[name]:.1f}" for name in names) for one in (local, remote))
    yield f"{speed['episodes']:,} episodes, {speed['files']} files, {size:,.0f} MB:"
    yield ""
    yield "| where | seconds | of them examining | CPU seconds | requests | MB |"
    yield "|---|---|---|---|---|---|"
    yield f"| local | {here} | - | - |"
    yield f"| 20 ms, 200 Mbit/s | {there} | {remote['requests']:,} | {read:.1f} |"


def refreshed(page: str, figures: Figures) -> str:
    """Return the page with the blocks of the figures in it. Pure."""
    for mark, text in tables(figures).items():
        begin, end = f"<!-- {mark}: begin -->", f"<!-- {mark}: end -->"
        before, _, rest = page.partition(begin)
        _, found, after = rest.partition(end)
        if not found:
            raise SystemExit(f"{PAGE}: want the marks {begin} and {end}")
        page = f"{before}{begin}\n{text}\n{end}{after}"
    return page


def main() -> None:
    """Compare, measure if asked to, write the figures and the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("lerobot_doctor", nargs="?", help="the command; without it, only --speed")
    parser.add_argument("--speed", type=Path, metavar="FOLDER")
    args = parser.parse_args()
    figures = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if args.lerobot_doctor:
        figures |= compare(args.lerobot_doctor)
    if args.speed:
        figures["speed"] = measure_speed(args.speed)
    RESULTS.write_text(json.dumps(figures, indent=1) + "\n")
    PAGE.write_text(refreshed(PAGE.read_text(), figures))


if __name__ == "__main__":
    main()
