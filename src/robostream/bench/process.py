# SPDX-License-Identifier: Apache-2.0
"""Run a measurement in a process of its own.

python -m robostream.bench.process MODULE:FUNCTION < ARGUMENTS

The process reads the arguments as one line of JSON, calls the function and prints its result as one
line of JSON. If the function is a generator, the process prints each item and waits for another
line before it continues.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from robostream.errors import RobostreamError


class MeasurementError(RobostreamError):
    """A measuring process failed.

    Attributes:
        reason: The last line that it wrote to standard error.
    """

    def __init__(self, function: str, text: str) -> None:
        self.reason = text.strip().splitlines()[-1] if text.strip() else "no message"
        super().__init__(f"{function} failed: {text.strip() or self.reason}")


def run_process(
    function: Callable[..., Any],
    *,
    environment: Mapping[str, str] | None = None,
    timeout_s: float | None = None,
    **arguments: Any,
) -> Any:
    """Return the result of a function of a module, called in a new process. Blocks.

    Args:
        function: The function; its arguments and result are JSON values.
        environment: Variables beyond those of this process.
        timeout_s: When to stop waiting; None waits forever.
        arguments: Keyword arguments of the function.
    """
    name = _target(function)
    try:
        done = subprocess.run(
            [sys.executable, "-m", __name__, name],
            input=json.dumps(arguments) + "\n",
            env={**os.environ, **(environment or {})},
            timeout=timeout_s,
            capture_output=True,
            text=True,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise MeasurementError(name, f"not done after {timeout_s:g} s") from error
    if done.returncode != 0:
        raise MeasurementError(name, done.stderr or f"exit code {done.returncode}")
    return json.loads(done.stdout.splitlines()[-1])


def iterate_process(
    function: Callable[..., Iterator[Any]],
    *,
    environment: Mapping[str, str] | None = None,
    **arguments: Any,
) -> Iterator[Any]:
    """Yield the items of a generator that runs in a new process; it pauses after each item."""
    with subprocess.Popen(
        [sys.executable, "-m", __name__, _target(function)],
        env={**os.environ, **(environment or {})},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(arguments) + "\n")
        process.stdin.flush()
        while line := process.stdout.readline():
            yield json.loads(line)
            process.stdin.write("\n")
            process.stdin.flush()
    if process.returncode != 0:
        raise MeasurementError(_target(function), "see its message above")


def _target(function: Callable[..., Any]) -> str:
    return f"{function.__module__}:{function.__name__}"


def main(target: str) -> None:
    """Call the function, print its result and exit."""
    arguments = json.loads(sys.stdin.readline())
    module, _, name = target.partition(":")
    result = getattr(importlib.import_module(module), name)(**arguments)
    is_generator = isinstance(result, Iterator)
    for item in result if is_generator else (result,):
        print(json.dumps(item), flush=True)
        if is_generator and not sys.stdin.readline():
            break
    # The workers of some loaders take long to stop. All figures are printed, so skip the wait.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
