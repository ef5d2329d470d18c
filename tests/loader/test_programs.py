# SPDX-License-Identifier: Apache-2.0
"""Whole programs: however they start, run and end, workers come along and leave no trace."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.loader.programs import HEAD, is_alive, run, start, wait_until
from tests.loader.streams import AV1
from tests.parameters import long_except
from tests.servers.required import lacking

FRAMES = "assert frames(loader) == list(range(62))\n"


def started_workers(program: subprocess.Popen[str]) -> list[int]:
    """The workers a program prints once it runs."""
    assert program.stdout is not None
    return [int(pid) for pid in program.stdout.readline().split()]


LOOP = """
# Python drops interrupts inside finalisers; whatever else is dropped there is seen.
sys.unraisablehook = lambda hook: hook.exc_type is KeyboardInterrupt or sys.__unraisablehook__(hook)
loader = open_loader(2)
batches = iter(loader)
next(batches)
print(*loader._running.pool.pids, flush=True)
while True:
    for batch in loader:
        pass
"""


@pytest.mark.parametrize("fork", long_except(["", "if os.fork() == 0: signal.pause()\n"], ""))
def test_workers_of_a_killed_consumer_end_themselves(fork: str) -> None:
    """Kill -9 leaves no worker, also where a fork of the consumer holds the channels open."""
    program = start(LOOP.replace("print", f"{fork}print"))
    workers = started_workers(program)
    assert len(workers) == 2
    os.kill(program.pid, signal.SIGKILL)
    program.wait()

    assert wait_until(lambda: not any(map(is_alive, workers)), 30)
    if fork:
        os.killpg(program.pid, signal.SIGKILL)
    program.communicate()


def test_workers_in_a_long_batch_end_with_a_killed_consumer_too(tmp_path: Path) -> None:
    """They do not go on until the batch is built, which may take minutes."""
    folder = f"folder = {str(tmp_path)!r}"
    program = start(
        folder
        + """
def slow(image):
    if image.any():
        open(f"{folder}/{os.getpid()}", "w").close()
        time.sleep(60)
    return image
loader = open_loader(2, camera_keys=None, image_transforms=slow)
batches = iter(loader)
print(*loader._running.pool.pids, flush=True)
next(batches)
"""
    )
    workers = started_workers(program)
    assert wait_until(lambda: {p.name for p in tmp_path.iterdir()} == set(map(str, workers)), 60)
    os.kill(program.pid, signal.SIGKILL)
    program.communicate()

    assert wait_until(lambda: not any(map(is_alive, workers)), 30)


@pytest.mark.long
def test_workers_that_wait_end_with_a_killed_consumer_too() -> None:
    """An idle worker does not outlive its consumer."""
    program = start(LOOP.split("while True")[0] + "batches.close()\nsignal.pause()")
    workers = started_workers(program)
    os.kill(program.pid, signal.SIGKILL)
    program.communicate()

    assert wait_until(lambda: not any(map(is_alive, workers)), 30)


@pytest.mark.parametrize("workers", long_except([0, 2], 2))
def test_ctrl_c_ends_the_program(workers: int) -> None:
    """An interrupt is one KeyboardInterrupt in the program; workers end and print nothing."""
    program = start(LOOP.replace("open_loader(2)", f"open_loader({workers})"))
    pids = started_workers(program)
    # An interrupt that arrives inside a finaliser is dropped by Python, so people press it twice.
    for _ in range(3):
        os.killpg(program.pid, signal.SIGINT)
        try:
            _, errors = program.communicate(timeout=30)
            break
        except subprocess.TimeoutExpired:
            continue
    else:
        os.killpg(program.pid, signal.SIGKILL)

    assert program.returncode not in (None, 0)
    assert errors.count("Traceback") == errors.count("KeyboardInterrupt") == 1
    assert not any(map(is_alive, pids))


@pytest.mark.long
def test_ctrl_c_while_workers_start_is_quiet() -> None:
    """Workers that have not come far yet do not complain either."""
    program = start("print(flush=True)\nloader = open_loader(2)\nfor batch in loader: pass")
    started_workers(program)
    wait_until(lambda: len(children(program.pid)) == 2, 10)
    pids = children(program.pid)
    os.killpg(program.pid, signal.SIGINT)
    _, errors = program.communicate(timeout=300)

    assert errors.count("Traceback") <= 1
    assert not any(map(is_alive, pids))


def children(pid: int) -> list[int]:
    try:
        return [int(c) for c in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


@pytest.mark.long
def test_signals_that_preempt_a_job_are_the_consumers_alone() -> None:
    """Workers go on when SLURM signals all processes of a job, from their first moment on."""
    code = """
signal.signal(signal.SIGUSR1, lambda number, frame: None)
loader = open_loader(2, batch_size=1)
def children():
    return open(f"/proc/self/task/{os.getpid()}/children").read().split()
def bother():
    until = time.monotonic() + 1
    while time.monotonic() < until:
        for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGINT):
            [os.kill(int(child), number) for child in children()]
thread = threading.Thread(target=bother)
thread.start()
want = frames(loader)
while thread.is_alive():
    assert frames(loader) == want
assert len(children()) == 2
print(len(want))
"""
    assert run(code) == "62\n"


@pytest.mark.long
def test_after_an_interrupt_the_next_loop_is_right(device: str | None) -> None:
    """Whenever Ctrl-C comes, loops after it deliver what they should, and nothing hangs."""
    run(
        f"device = {device!r}"
        + """
loader, interrupts, armed = open_loader(2, batch_size=1, device=device), 0, False
delays_s = (0.003 + 0.0007 * (n % 17) for n in range(10**9))
def interrupt(*_):    # not where nobody catches it
    global armed
    if armed:
        armed = False
        raise KeyboardInterrupt
signal.signal(signal.SIGINT, interrupt)
def bother():    # until so many interrupts were caught, however slow the machine is
    while interrupts < 20:
        time.sleep(next(delays_s))
        os.kill(os.getpid(), signal.SIGINT)
thread = threading.Thread(target=bother, daemon=True)
thread.start()
sys.unraisablehook = lambda hook: None    # Python drops interrupts inside finalisers
while interrupts < 20:
    try:
        armed = True
        loader.set_epoch(0)
        for batch in loader:
            pass
        armed = False
    except KeyboardInterrupt:
        interrupts += 1
thread.join()
loader.set_epoch(0)
assert frames(loader) == list(range(62))
"""
    )


OPEN_AT_THE_END = """
def used(loader, batches=1):
    iterator = iter(loader)
    for _ in range(batches):
        next(iterator)
    return iterator

loaders = [open_loader({workers}, device={device!r}) for _ in range(6)]
read, unread = used(loaders[0]), iter(loaders[1])
cycle = [used(loaders[2])]
cycle.append(cycle)
thread = threading.Thread(target=frames, args=(loaders[3],))
thread.start()
thread.join()
held = [batch for batch, _ in zip(loaders[4], "ab")]
closed = used(loaders[5])
pids = [pid for loader in loaders for pid in loader._running.pool.pids]
loaders[5].close()
print(*pids)
for batch in loaders[0]:
    sys.exit(0)
"""


@pytest.mark.parametrize("workers", long_except([0, 1], 1))
@pytest.mark.parametrize("device", long_except([None, "cpu", "cuda"], "cpu"), indirect=True)
def test_programs_end_without_a_word(workers: int, device: str | None) -> None:
    """Whatever is open at the end of a script: no hang, no orphan, nothing on stderr."""
    strict = [sys.executable, "-W", "error", "-X", "dev", "-c"]
    program = OPEN_AT_THE_END.format(workers=workers, device=device)
    pids = run(program, python=strict).split()

    assert len(pids) == 6 * workers
    assert not any(is_alive(int(pid)) for pid in pids)


@pytest.mark.long
@pytest.mark.parametrize("last", ["sys.exit(0)", "del batches"])
@pytest.mark.parametrize("device", ["cpu", "cuda"], indirect=True)
def test_a_program_may_end_during_an_upload(last: str, device: str) -> None:
    """The thread that uploads comes back from torch, and its program ends as if it were not.

    Also if the loader is gone by then, and nobody waits for what it began.
    """
    run(
        f"device = {device!r}"
        + """
import torch
from robostream.device import upload
numbers, draw_batch = torch.ones(1 << 24), upload.draw_batch
def slowly(tensors, cameras):
    for _ in range(20):
        numbers.mul_(1)
    return draw_batch(tensors, cameras)
upload.draw_batch = slowly
batches = iter(open_loader(1, batch_size=1, device=device))
next(batches)
while batches._started is None:
    next(batches)
"""
        + last
    )


@pytest.mark.long
@pytest.mark.parametrize("device", ["cpu", "cuda"], indirect=True)
def test_a_program_may_end_while_pages_are_let_go_of(device: str) -> None:
    """The thread that uploads does that last, when it was told to end and its loader is gone."""
    run(
        f"device = {device!r}"
        + """
import threading
import torch
from robostream.device import upload
numbers, has_begun = torch.ones(1 << 24), threading.Event()
def slowly(self):
    has_begun.set()
    for _ in range(40):
        numbers.mul_(1)
upload.CpuUpload.__del__ = upload.CudaUpload.__del__ = slowly
batches = iter(open_loader(1, batch_size=1, device=device))
next(batches)
del batches
has_begun.wait()
"""
    )


@pytest.mark.long
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_loader_can_be_used_when_the_program_ends(when: str, device: str | None) -> None:
    """One that is there, and a new one; also after the threads that upload were ended."""
    found = run(
        f"when, device = {when!r}, {device!r}"
        + """
import atexit
from robostream.device import upload
loader = open_loader(1, device=device)
next(iter(loader))
def last():
    for late in (loader, open_loader(0, device=device)):
        late.set_epoch(0)
        print(frames(late) == list(range(62)))
atexit.register(last)
if when == "after":
    atexit.unregister(upload._end_all)
    atexit.register(upload._end_all)
"""
    )

    assert found == "True\nTrue\n"


@pytest.mark.parametrize("workers", [0, 1])
def test_a_running_iterator_ends_with_the_workers(workers: int) -> None:
    """Exit handlers that come after the workers were ended: they get an error, and do not wait."""
    found = run(f"""
import atexit, weakref
from robostream.errors import WorkerError
def last():
    signal.alarm(60)    # ends the program
    try:
        print(len(next(batches)["index"]))
    except WorkerError as error:
        print("ended" in str(error))
# Exit handlers run in reverse order. Weakref's ends the workers.
atexit.unregister(weakref.finalize._exitfunc)
atexit.register(last)
atexit.register(weakref.finalize._exitfunc)
batches = iter(open_loader({workers}))
next(batches)
""")

    assert found == ("True\n" if workers else "4\n")


@pytest.mark.long
def test_an_exception_in_the_loop_ends_the_program_with_it() -> None:
    """The program prints the user's traceback and nothing else."""
    program = start("loader = open_loader(2)\nfor batch in loader: raise RuntimeError('mine')")
    _, errors = program.communicate(timeout=300)

    assert program.returncode == 1
    assert errors.count("Traceback") == 1
    assert errors.endswith("RuntimeError: mine\n")


def test_a_script_needs_no_main_guard(tmp_path: Path) -> None:
    """Workers do not run the script again; functions of it reach them."""
    script = tmp_path / "train.py"
    script.write_text(
        HEAD
        + """
print("run")
SCALE = 2
def halve(picture):
    return picture[:, ::SCALE, ::SCALE]
loader = open_loader(1, camera_keys=None, image_transforms=halve)
assert next(iter(loader))["observation.images.top"].shape == (4, 3, 24, 32)
"""
    )
    done = subprocess.run(
        [sys.executable, str(script), str(AV1)], capture_output=True, text=True, timeout=300
    )

    assert (done.stdout, done.stderr) == ("run\n", "")


@pytest.mark.long
def test_a_script_may_come_from_standard_input() -> None:
    """`python -` works, transforms included."""
    code = (
        HEAD
        + "loader = open_loader(2, camera_keys=None, image_transforms=lambda p: p[:1])\n"
        + "assert next(iter(loader))['observation.images.top'].shape[1] == 1\n"
        + FRAMES
    )
    done = subprocess.run(
        [sys.executable, "-", str(AV1)], input=code, capture_output=True, text=True, timeout=300
    )

    assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture(scope="module")
def many_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of 280 video files, of which most are copies: encoders are slow to start."""
    root = tmp_path_factory.mktemp("many") / "dataset"
    sizes = ["--episodes", "140", "--distinct", "4", "--cameras", "2", "--size", "64x64"]
    lengths = ["--frames", "4:5", "--video-file-mb", "0.001"]
    command = [sys.executable, "-m", "robostream.cli.main", "synth", str(root), *sizes, *lengths]
    subprocess.run(command, check=True, capture_output=True)
    assert len(list(root.rglob("*.mp4"))) > 256
    return root


@pytest.mark.long
@pytest.mark.parametrize("workers", [0, 2])
def test_few_files_may_be_open(many_files: Path, workers: int) -> None:
    """With `ulimit -n 256` a dataset of more video files than that works."""
    limited = ["bash", "-c", 'ulimit -n 256; exec "$0" -c "$@"', sys.executable]
    code = f"loader = open_loader({workers}, camera_keys=None)\nn = loader.stream.num_frames\n"
    run(code + "assert frames(loader) == list(range(n))", root=many_files, python=limited)


@pytest.mark.long
def test_address_space_may_be_limited() -> None:
    """A loader works under a limit on virtual memory."""
    if shutil.which("prlimit") is None:
        lacking("PRLIMIT", "this test needs the command prlimit (Debian package util-linux)")
    limited = ["prlimit", f"--as={8 << 30}", sys.executable, "-c"]
    run("loader = open_loader(2, camera_keys=None)\n" + FRAMES, python=limited)
