# SPDX-License-Identifier: Apache-2.0
"""An interrupt while workers start leaves no process, no memory, and a loader that works."""

from __future__ import annotations

import pytest

from tests.loader.programs import run
from tests.parameters import long_except

PROGRAM = """
import _thread
from pathlib import Path
from robostream.workers import processes
processes._END_S = 0.0    # workers that have just started would take a while to end
signal.signal(signal.SIGINT, signal.default_int_handler)
FILES = ["/workers/", "/loader/dataloader.py", "/loader/running_pool.py", "subprocess.py"]
seen = set()

def left():
    gc.collect()
    children = [p.read_text() for p in Path("/proc/self/task").glob("*/children")]
    files = [os.path.realpath(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd")]
    return len("".join(children).split()), sum("memfd:" in file for file in files)

def count_lines(frame, event, argument):
    global lines, at
    found = [name for name in FILES if name in frame.f_code.co_filename]
    if not found:
        return None
    seen.update(found)
    lines += 1
    if lines == interrupt_at:
        at = frame.f_code.co_filename, frame.f_lineno
        INTERRUPT
    return count_lines

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

INTERRUPTS = ["signal.raise_signal(2)", "_thread.interrupt_main()"]


@pytest.mark.parametrize("interrupt", long_except(INTERRUPTS, INTERRUPTS[0]))
def test_an_interrupt_while_workers_start_leaves_nothing(interrupt: str) -> None:
    """At whichever line it comes, also if another thread takes the signal."""
    run(PROGRAM.replace("INTERRUPT", interrupt).replace("EVERY", "97"))
