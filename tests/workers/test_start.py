# SPDX-License-Identifier: Apache-2.0
"""An interrupt leaves no process, no memory and no lock, and a loader that works."""

from __future__ import annotations

import pytest

from tests.loader.programs import run
from tests.parameters import long_except

# The interrupt is pending when `count_lines` returns: after it was sent, `count_lines` makes no
# call, which Python would interrupt. So the program is interrupted where it can be. A trace
# function that raises would also interrupt it where no signal can, as before the end of `with`.
TRACE = """
import _thread, ctypes
from pathlib import Path
from robostream.workers import processes
processes._END_S = 0.0    # workers that have just started would take a while to end
signal.signal(signal.SIGINT, signal.default_int_handler)
interrupt = INTERRUPT
seen = set()

def count_lines(frame, event, argument):
    global lines, at
    found = [name for name in FILES if name in frame.f_code.co_filename]
    if not found:
        return None
    seen.update(found)
    lines += 1
    if lines == interrupt_at:
        at = frame.f_code.co_filename, frame.f_lineno
        sys.settrace(None)
        [*map(interrupt, (signal.SIGINT,))]
    return count_lines
"""

START = """
FILES = ["/workers/", "/loader/dataloader.py", "/loader/running_pool.py", "subprocess.py"]

def left():
    gc.collect()
    children = [p.read_text() for p in Path("/proc/self/task").glob("*/children")]
    files = [os.path.realpath(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd")]
    return len("".join(children).split()), sum("memfd:" in file for file in files)

rounds, lines, interrupt_at = 0, 0, None
loader = open_loader(1)
iter(loader)
loader.close()
gc.freeze()
clean = left()
while interrupt_at is None or lines >= interrupt_at:
    interrupt_at, lines = EVERY * rounds + 1, 0
    rounds += 1
    sys.settrace(count_lines)
    try:
        iterator = iter(loader)
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(None)
        iterator = None
        loader.close()
    assert left() == clean, (interrupt_at, at, left(), clean)
assert seen == set(FILES), seen    # so that none of them is missed because it was renamed
assert frames(loader) == list(range(62))
"""

USE = """
FILES = ["/workers/pool.py", "/workers/worker_pool.py", "/loader/batch_iterator.py"]

def is_interrupt(unraisable):
    assert isinstance(unraisable.exc_value, KeyboardInterrupt), unraisable

sys.unraisablehook = is_interrupt    # one that comes in a `__del__`
loader = open_loader(WORKERS)
interrupt_at, lines = 0, 0
while lines >= interrupt_at:
    interrupt_at, lines = interrupt_at + EVERY, 0
    sys.settrace(count_lines)
    try:
        iterator = iter(loader)
        next(iterator)
        next(iterator)
        iterator.close()
        loader.close()
        time.sleep(0)    # here at the latest
    except KeyboardInterrupt as error:
        kept = error    # and what its traceback refers to
    finally:
        sys.settrace(None)
    signal.alarm(60)    # ends the program
    next(iter(loader))
    loader.close()
assert seen >= {FILES[bool(WORKERS)], FILES[2]}, seen
assert frames(loader) == list(range(62))
"""

HOLD = """
from robostream.workers import signals_held
FILES = ["/workers/processes.py"]
interrupt_at, lines = 0, 0
while lines >= interrupt_at:
    interrupt_at, lines = interrupt_at + 1, 0
    sys.settrace(count_lines)
    try:
        with signals_held():
            pass
        time.sleep(0)    # here at the latest
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(None)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler, at
assert seen == set(FILES), seen
"""

# Sent to the main thread, and taken by another one, which no mask of signals prevents.
INTERRUPTS = ["ctypes.CDLL(None)['raise']", "_thread.interrupt_main"]


@pytest.mark.parametrize("interrupt", long_except(INTERRUPTS, INTERRUPTS[0]))
def test_an_interrupt_while_workers_start_leaves_nothing(interrupt: str) -> None:
    """At whichever line it comes, also if another thread takes the signal."""
    run((TRACE + START).replace("INTERRUPT", interrupt).replace("EVERY", "97"))


@pytest.mark.parametrize("workers", long_except([0, 1], 0))
def test_an_interrupt_leaves_no_lock(workers: int) -> None:
    """The next iterator delivers, whatever still refers to the interrupt's traceback."""
    program = (TRACE + USE).replace("INTERRUPT", INTERRUPTS[1])
    run(program.replace("WORKERS", str(workers)).replace("EVERY", "19" if workers else "1"))


@pytest.mark.parametrize("interrupt", INTERRUPTS)
def test_an_interrupt_while_signals_are_held_leaves_the_programs_handler(interrupt: str) -> None:
    """None of ours is left in its place."""
    run((TRACE + HOLD).replace("INTERRUPT", interrupt))
