# SPDX-License-Identifier: Apache-2.0
"""Files encoded by several processes at a time, and how far they are."""

from __future__ import annotations

import faulthandler
import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from robostream import config
from robostream.errors import WriteError
from robostream.tools.child_processes import end_with_parent, no_interrupts, safe_imports
from robostream.tools.recode.check import check_copy
from robostream.tools.recode.encode import AGAIN, VideoJob, encode_video

_POLL_S = 0.2
# Longer than any encoder takes for a picture, or for those that it holds back at the end.
_STALL_S = 5 * config.ENCODER_STALL_S

# In a process that encodes: how many frames all processes have encoded, and whether to stop.
_frames: Any = None
_stop: Any = None


@safe_imports()
def run_jobs(
    jobs: Sequence[VideoJob], *, processes: int, on_progress: Callable[[int], object]
) -> list[float]:
    """Make and check the files of all jobs; return the PSNR of each, as `check_copy` does.

    A file that is there already is checked only. `on_progress` is told the number of frames done.
    """
    # Not forked: encoders and their threads do not survive a fork.
    context = multiprocessing.get_context("spawn")
    frames, stop = context.Value("q", 0), context.Event()
    pool = ProcessPoolExecutor(
        processes, mp_context=context, initializer=_begin, initargs=(frames, stop)
    )
    with pool:
        with no_interrupts():
            futures = [pool.submit(run_job, job) for job in jobs]
        try:
            pending = set(futures)
            while pending:
                done, pending = wait(pending, _POLL_S, FIRST_COMPLETED)
                for future in done:
                    future.result()
                on_progress(frames.value)
        except BrokenProcessPool as error:
            raise WriteError(
                "a process that encodes has ended: its encoder stalled, or the system killed it "
                f"for want of memory. {AGAIN} With fewer --jobs it takes less memory."
            ) from error
        finally:
            stop.set()
            pool.shutdown(cancel_futures=True)
    return [future.result() for future in futures]


def run_job(job: VideoJob) -> float:
    """Make the file of a job unless it is there, and check it."""
    if not job.target.exists():
        try:
            encode_video(job, _count_frame)
        finally:
            faulthandler.cancel_dump_traceback_later()
    else:
        _add_frames(job.num_frames)
    return check_copy(job.source, job.target)


def _begin(frames: Any, stop: Any) -> None:
    """Set up a process that encodes."""
    global _frames, _stop
    _frames, _stop = frames, stop
    end_with_parent()


def _count_frame() -> None:
    """Count a frame. Stops this job if all have stopped, and the process if its encoder stalls."""
    _add_frames(1)
    if _stop.is_set():
        raise WriteError("stopped, because another file failed or the command was interrupted")
    faulthandler.dump_traceback_later(_STALL_S, exit=True)


def _add_frames(number: int) -> None:
    with _frames.get_lock():
        _frames.value += number
