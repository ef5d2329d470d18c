# SPDX-License-Identifier: Apache-2.0
"""A real Slurm cluster of two nodes on this machine.

Controller, both node daemons and munge run in namespaces of their own: their ports are seen by
nobody else, any number of clusters may run side by side, and when the first process of the
namespace is killed the kernel takes all others along, jobs included.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

NODES = ("n1", "n2")
_PROGRAMS = ("slurmctld", "slurmd", "munged", "shellcheck")
_SETUP = Path(__file__).parents[2] / "scripts" / "setup_slurm"
_START_TIMEOUT_S = 120
_JOB_TIMEOUT_S = 500
_ENDED = {
    "BOOT_FAIL",
    "CANCELLED",
    "COMPLETED",
    "DEADLINE",
    "FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "TIMEOUT",
}
_UNSHARE = ("unshare", "--net", "--pid", "--fork", "--mount-proc")
# Entering another mount namespace loses the working folder unless it is named.
_INTO = ("--net", "--pid", "--mount", "--wd=.")
# Slurm looks its own host name up and needs an address besides 127.0.0.1 to find.
_START = """
set -e
ip link set lo up
ip addr add 127.0.0.2/8 dev lo
munged --force --key-file=munge/key --socket="$PWD/munge/socket" --pid-file="$PWD/munge/pid" \
  --log-file="$PWD/munge/log" --seed-file="$PWD/munge/seed"
slurmctld -i
slurmd -N n1
slurmd -N n2
exec cat  # until whoever started the cluster closes our input, or is gone
"""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A running cluster; `process` is the first process of its namespaces."""

    folder: Path
    process: int

    def run(
        self,
        *command: str | Path,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        check: bool = True,
    ) -> str:
        """Run a command where the cluster is; return what it printed, on failure raise it."""
        done = subprocess.run(
            ["nsenter", f"--target={self.process}", *_INTO, *command],
            cwd=cwd,
            env=self.environment | dict(env or {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if check and done.returncode != 0:
            words = shlex.join(str(word) for word in command)
            raise RuntimeError(f"{words} ended with {done.returncode}: {done.stdout}")
        return done.stdout

    @property
    def environment(self) -> dict[str, str]:
        """The variables with which Slurm's commands find this cluster."""
        outside = {name: value for name, value in os.environ.items() if "SLURM" not in name}
        return outside | {"SLURM_CONF": str(self.folder / "slurm.conf")}

    def submit(
        self,
        *arguments: str | Path,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> int:
        """Hand a job to sbatch; return its number. Its output is what `output` reads."""
        places = ["--parsable", f"--output={self.folder}/job-%j.out", "--open-mode=append"]
        return int(self.run("sbatch", *places, *arguments, cwd=cwd, env=env))

    def show(self, job: int) -> dict[str, str]:
        """Return what Slurm knows of a job, by Slurm's names: JobState, ExitCode, NodeList..."""
        words = self.run("scontrol", "-o", "show", "job", str(job)).split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def wait(self, job: int) -> dict[str, str]:
        """Return what Slurm knows of a job once it has ended."""
        return self._wait_until(job, "end", lambda found: found["JobState"] in _ENDED)

    def wait_for_output(self, job: int, text: str, *, times: int = 1) -> None:
        """Wait until a job has printed a text so many times; raise if it ends before."""
        self._wait_until(job, repr(text), lambda _: self.output(job).count(text) >= times)

    def wait_for_state(self, job: int, state: str) -> None:
        """Wait until a job is in a state, such as RUNNING; raise if it ends before."""
        self._wait_until(job, state, lambda found: found["JobState"] == state)

    def output(self, job: int) -> str:
        """Return what a job has printed so far, all tasks and restarts together."""
        path = Path(self.show(job).get("StdOut", self.folder / f"job-{job}.out"))
        return path.read_text(errors="replace") if path.is_file() else ""

    def signal(self, job: int, name: str, *, script: bool = False) -> None:
        """Send a signal to the steps of a job; with `script` to its batch script alone."""
        self.run("scancel", *(["--batch"] if script else []), f"--signal={name}", str(job))

    def requeue(self, job: int) -> None:
        """Stop a running job and let it begin again, as preemption does."""
        restart = int(self.show(job)["Restarts"]) + 1
        self.run("scontrol", "requeue", str(job))
        self.hurry(job, restart)

    def hurry(self, job: int, restart: int) -> None:
        """Wait for a job's n-th requeue and let it begin in 2 s: Slurm would hold it 2 minutes.

        Not at once: a node that is asked within the second in which it ended the job before takes
        the new start for that one, and refuses it.
        """

        def is_held(found: dict[str, str]) -> bool:
            return int(found["Restarts"]) >= restart and found["JobState"] == "PENDING"

        self._wait_until(job, f"restart {restart}", is_held)
        self.run("scontrol", "update", f"JobId={job}", "StartTime=now+2")

    def _wait_until(
        self, job: int, what: str, is_true: Callable[[dict[str, str]], bool]
    ) -> dict[str, str]:
        """Ask for a job until something is true of it; raise if it ends without, or takes long."""
        deadline = time.monotonic() + _JOB_TIMEOUT_S
        while not is_true(found := self.show(job)):
            if found["JobState"] in _ENDED or time.monotonic() > deadline:
                raise RuntimeError(f"job {job}: no {what}, but {found} and {self.output(job)}")
            time.sleep(0.1)
        return found


def why_not() -> str | None:
    """Return why no cluster can run here, None if one can; install Slurm if need be."""
    if os.geteuid() != 0:
        return "Slurm's daemons and namespaces need root"
    if not all(map(shutil.which, _PROGRAMS)):
        if shutil.which("apt-get") is None:
            return "Slurm is not installed, and there is no apt-get to install it with"
        setup = subprocess.run([_SETUP], capture_output=True, text=True, check=False)
        if setup.returncode != 0:
            return f"{_SETUP} could not install Slurm: {setup.stderr.strip()}"
    namespaces = subprocess.run(
        [*_UNSHARE, "ip", "link", "set", "lo", "up"],
        capture_output=True,
        text=True,
        check=False,
    )
    return f"no namespaces: {namespaces.stderr.strip()}" if namespaces.returncode else None


@contextmanager
def serve_cluster(folder: Path) -> Iterator[Cluster]:
    """Run a cluster that keeps everything in a folder, and yield it when both nodes are idle."""
    (folder / "munge").mkdir(mode=0o755)
    (folder / "state").mkdir()
    (folder / "munge" / "key").write_bytes(os.urandom(128))
    (folder / "munge" / "key").chmod(0o600)
    template = Path(__file__).with_name("slurm.conf").read_text()
    (folder / "slurm.conf").write_text(template.replace("@FOLDER@", str(folder)))
    # GPUs are counted by their device files; any files do where nothing opens them.
    for number in range(8):
        (folder / f"gpu{number}").touch()
    (folder / "gres.conf").write_text(f"Name=gpu File={folder}/gpu[0-7]\n")
    with (folder / "start.log").open("wb") as log:
        process = subprocess.Popen(
            [*_UNSHARE, "--kill-child", "sh", "-c", _START],
            cwd=folder,
            env=os.environ | {"SLURM_CONF": str(folder / "slurm.conf")},
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    with process:
        try:
            yield _wait_until_idle(folder, process)
        finally:
            process.kill()


def _wait_until_idle(folder: Path, process: subprocess.Popen[bytes]) -> Cluster:
    """Block until the namespaces are there and both nodes answer."""
    deadline = time.monotonic() + _START_TIMEOUT_S
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    while True:
        first = children.read_text().split() if process.poll() is None else []
        if first:
            cluster = Cluster(folder, int(first[0]))
            states = cluster.run("sinfo", "--noheader", "--Node", "--format=%T", check=False)
            if states.split() == ["idle"] * len(NODES):
                return cluster
        if process.poll() is not None or time.monotonic() > deadline:
            logs = "\n".join(path.read_text(errors="replace") for path in folder.glob("*.log"))
            raise RuntimeError(f"the Slurm cluster did not start: {logs}")
        time.sleep(0.1)
