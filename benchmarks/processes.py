"""Seconds and host memory of whole commands, each in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).resolve().parents[1]
MEMLINT = [sys.executable, "-m", "memlint"]
CHECK = [*MEMLINT, "check", "--no-cache", "--output-format", "json"]
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
"""With byte code, as pip leaves it."""
_MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024  # getrusage(2) of each system


class Measured(NamedTuple):
    """One command that ran."""

    seconds: float
    processor_seconds: float
    """Those of all its processes together: what else runs on the machine disturbs them less."""
    resident: int
    """Peak resident bytes of the largest process, memlint's child included."""
    status: int
    output: str


def measure(arguments: Sequence[str], folder: Path = ROOT, cpus: int = 2) -> Measured:
    """Run a command in `folder`, on so many CPUs at most.

    A process that is started counts what its parent holds at that time: whoever calls this has imported little.
    """
    everything = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(everything)[:cpus])
    try:
        with tempfile.TemporaryFile("w+") as output:
            start = time.perf_counter()
            process = subprocess.Popen(arguments, cwd=folder, env=ENVIRONMENT, stdout=output, stderr=subprocess.DEVNULL)
            _, status, usage = os.wait4(process.pid, 0)
            seconds = time.perf_counter() - start
            process.returncode = os.waitstatus_to_exitcode(status)
            output.seek(0)
            return Measured(
                seconds,
                usage.ru_utime + usage.ru_stime,
                usage.ru_maxrss * _MAXRSS_UNIT,
                process.returncode,
                output.read(),
            )
    finally:
        os.sched_setaffinity(0, everything)


def answer(measured: Measured) -> str:
    """The estimate of a `memlint check` that writes JSON, so that a run that failed is seen for what it is."""
    if not measured.output.startswith("{"):
        return f"exit {measured.status}"
    workload = json.loads(measured.output)["workloads"][0]
    if workload["error"] is not None:
        return f"failed: {workload['error']['message']}"
    return f"needs {workload['estimate']['peak']['device']['estimate'] / 2**30:,.1f} GiB"
