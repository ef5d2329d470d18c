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
from pathlib import Path
from typing import Any

from robostream.bench.results import Publication, Table

REPO = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPO)]

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


def check_table(repo: Path) -> str:
    """Return the table of the checks."""
    from robostream.tools.doctor.examine import CHECKS

    columns = {
        "check": lambda one: f"`{one.id}`",
        "level": lambda one: one.item.level,
        "what holds for a sound dataset": lambda one: one.title,
        "why it matters": lambda one: one.why,
    }
    return Table.of(CHECKS, columns).markdown()


def broken_table(repo: Path) -> str:
    """Return what both say of each broken dataset."""
    figures = PUBLICATION.read(repo)
    rows, theirs = figures["broken"], f"lerobot-doctor {figures['lerobot_doctor']}"
    seen = sum(bool(row["lerobot_doctor"]) for row in rows)
    named = sum(row["check"] in row["robostream"] for row in rows)
    summary = f"Of {len(rows)} kinds, `robostream doctor` names {named} and {theirs} sees {seen}."
    columns = {
        "broken dataset": "name",
        "level": "level",
        "named by": lambda row: f"`{row['check']}`",
        "lerobot-doctor": lambda row: shorten(min(row["lerobot_doctor"], default="not seen")),
    }
    return f"{summary}\n\n{Table.of(rows, columns).markdown()}"


def shorten(text: str) -> str:
    """Return a message without folders, at most 70 characters. Pure."""
    text = re.sub(r"\S*/chunk-\d+/|/tmp/\S*/", "", " ".join(text.split())).replace("|", "/")
    return text if len(text) <= 70 else f"{text[:67]}..."


def sound_table(repo: Path) -> str:
    """Return what both say of each sound dataset."""

    def theirs(row: Figures) -> str:
        failed = sum(text.startswith("FAIL") for text in row["lerobot_doctor"])
        return f"{failed} failures, {len(row['lerobot_doctor']) - failed} warnings"

    columns = {
        "sound dataset": "name",
        "robostream": lambda row: (
            f"{len(row['robostream'])} alarms" * bool(row["robostream"]) or "none"
        ),
        "lerobot-doctor": theirs,
    }
    return Table.of(PUBLICATION.read(repo)["sound"], columns).markdown()


def speed_table(repo: Path) -> str:
    """Return the times of the default level, locally and behind the proxy."""
    speed = PUBLICATION.read(repo)["speed"]
    size, remote = speed["dataset_bytes"] / 1e6, speed["remote"]
    header = ["where", "seconds", "of them examining", "CPU seconds", "requests", "MB"]
    far = [f"{remote['requests']:,}", f"{remote['bytes'] / 1e6:.1f}"]
    rows = [
        [where, *(f"{found[name]:.1f}" for name in ("seconds", "reading_s", "cpu_s")), *rest]
        for where, found, rest in (
            ("local", speed["local"], ["-", "-"]),
            ("20 ms, 200 Mbit/s", remote, far),
        )
    ]
    files = f"{speed['episodes']:,} episodes, {speed['files']} files, {size:,.0f} MB:"
    return f"{files}\n\n{Table(header, rows).markdown()}"


BLOCKS = {
    "doctor checks": check_table,
    "doctor speed": speed_table,
    "doctor broken": broken_table,
    "doctor sound": sound_table,
}
PUBLICATION = Publication("doctor.json", {Path("docs/doctor.md"): BLOCKS})


def main() -> None:
    """Compare, measure if asked to, write the figures and the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("lerobot_doctor", nargs="?", help="the command; without it, only --speed")
    parser.add_argument("--speed", type=Path, metavar="FOLDER")
    args = parser.parse_args()
    figures = PUBLICATION.read(REPO)
    if args.lerobot_doctor:
        figures |= compare(args.lerobot_doctor)
    if args.speed:
        figures["speed"] = measure_speed(args.speed)
    PUBLICATION.publish(REPO, figures)


if __name__ == "__main__":
    main()
