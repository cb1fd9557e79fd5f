"""Many requests, each in a child process on a worker of a Ray cluster."""

import contextlib
import hashlib
import importlib.util
import json
import logging
import os
import re
import socket
import tempfile
import textwrap
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from memlint.base.errors import UsageError, WorkerError
from memlint.base.own_process import terminations_raise
from memlint.base.version import install_command
from memlint.worker.endings import unanswered
from memlint.worker.protocol import Answer
from memlint.worker.ray import worker as ray_worker
from memlint.worker.ray.archive import pack
from memlint.worker.ray.messages import received, sent
from memlint.worker.task import Task

_INTERVAL = 0.1  # seconds between two calls of `on_wait`
_RETRIES = 3
"""How often a task is begun anew whose worker was lost."""
_CONNECT_PATIENCE = 10.0  # seconds for a cluster's address to answer at all
_CANCEL_PATIENCE = 15.0  # seconds for cancelled tasks to end their children
_QUIET = {"RAY_DEDUP_LOGS": "1", "RAY_DEDUP_LOGS_SKIP_REGEX": "^"}
"""Let Ray skip every message that it would print, even without logs of workers, such as that one was lost:
https://docs.ray.io/en/latest/ray-observability/user-guides/configure-logging.html.
"""
_MOST_SAID = 500  # characters of what Ray says went wrong
_CPP_LINE = re.compile(r"\.(?:cc|h):\d+: (.+)")
_TOKENS = "https://docs.ray.io/en/latest/ray-security/token-auth.html"
_NOTED = Path("/tmp/ray/ray_current_cluster")
"""The file with the address of `ray start`. It outlives the cluster, and `ray.init` then tries it for minutes."""
_CLIENT_PORT = 10001
"""The port of `ray://host`: https://docs.ray.io/en/latest/cluster/running-applications/job-submission/ray-client.html."""
_PORT = 6379
"""The port of `host`, the default of `ray start`."""


def answers_on_ray(
    tasks: Sequence[Task],
    *,
    address: str | None = None,
    on_wait: Callable[[Task, float], None] = lambda _task, _seconds: None,
) -> Iterator[tuple[int, Answer]]:
    """Yield the number of each task and its Answer, as they complete, as `memlint.worker.parallel.answers_to` does.

    `address` is what `ray.init` takes; None is a cluster of this machine's own, unless RAY_ADDRESS or `ray start` say
    otherwise. Workers get the files of the project as `pack` finds them. A task whose worker is lost is begun anew up
    to three times. Raises UsageError without Ray or without a cluster, and what `pack` raises.
    """
    if not tasks:
        return
    if importlib.util.find_spec("ray") is None:
        raise UsageError("Ray is not installed", install_command("ray"))
    archives = _archives(tasks)
    with _connected(address) as ray, terminations_raise():
        carry_out = ray.remote(max_retries=_RETRIES, retry_exceptions=False)(ray_worker.carry_out)
        versions = ray_worker.versions()
        objects: dict[str, Any] = {}
        running: dict[Any, int] = {}
        start = time.monotonic()
        for number, task in enumerate(tasks):
            archive = archives[_project(task)]
            digest = hashlib.sha256(archive).hexdigest()
            if digest not in objects:
                objects[digest] = ray.put(archive)
            running[carry_out.remote(objects[digest], sent(task), versions)] = number
        try:
            while running:
                ready, _others = ray.wait(list(running), num_returns=1, timeout=_INTERVAL)
                for each in ready:
                    answer = _answer(ray, each, versions)
                    yield running.pop(each), answer
                if running:
                    on_wait(tasks[min(running.values())], time.monotonic() - start)
        except KeyboardInterrupt:
            yield from _cancelled(ray, running, versions)
            raise


def _project(task: Task) -> tuple[str, tuple[str, ...]]:
    return task.request.root, task.request.settings.exclude


def _archives(tasks: Sequence[Task]) -> dict[tuple[str, tuple[str, ...]], bytes]:
    """The files of every project."""
    targets: dict[tuple[str, tuple[str, ...]], set[Path]] = defaultdict(set)
    for task in tasks:
        targets[_project(task)].update({Path(task.request.path)} if task.request.path else ())
    return {(root, exclude): pack(Path(root), exclude, named) for (root, exclude), named in targets.items()}


@contextlib.contextmanager
def _connected(address: str | None) -> Iterator[Any]:
    """The module `ray`, connected, and disconnected after the block. Raises UsageError."""
    address = address or os.environ.get("RAY_ADDRESS") or None
    if address in (None, "auto") and _NOTED.is_file():
        try:
            _probe(_NOTED.read_text(encoding="utf-8").strip())
        except UsageError:
            if address is not None:
                raise
            address = "local"
    if address not in (None, "local"):
        _probe(address)
        os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", "1")  # of 40 s each, for something else that listens there
    os.environ |= _QUIET
    ray = importlib.import_module("ray")
    ray.cloudpickle.register_pickle_by_value(ray_worker)
    with tempfile.TemporaryFile() as written:
        try:
            # Workers get the current directory into their `sys.path`: the user's own must not stand there.
            with contextlib.chdir(Path.cwd().anchor), _stderr_into(written):
                ray.init(address=address, log_to_driver=False, logging_level=logging.CRITICAL, include_dashboard=False)
        except (ImportError, OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
            written.seek(0)
            lines = _CPP_LINE.findall(written.read().decode(errors="replace"))
            raise _unreachable(address, textwrap.shorten(": ".join([str(error), *lines[-1:]]), _MOST_SAID)) from error
    try:
        yield ray
    finally:
        ray.shutdown()


@contextlib.contextmanager
def _stderr_into(file: IO[bytes]) -> Iterator[None]:
    """Keep stderr in `file`: the C++ part of Ray writes there before it has files of its own."""
    kept = os.dup(2)
    try:
        os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _probe(address: str) -> None:
    """Raise UsageError if nobody listens at `address`; Ray itself would try for minutes."""
    scheme, _, place = address.rpartition("://")
    host, colon, port = place.partition("/")[0].rpartition(":")
    if scheme not in ("", "ray") or address in ("auto", "local"):
        return
    if not colon:
        host, port = port, str(_CLIENT_PORT if scheme else _PORT)
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_PATIENCE).close()
    except (OSError, ValueError, OverflowError) as error:
        raise _unreachable(address, str(error)) from error


def _unreachable(address: str | None, reason: str) -> UsageError:
    where = "cannot be started here" if address is None else f"cannot be reached at {address}"
    hint = "Give --address as `ray status` or `ray start` shows it, host:6379 or ray://host:10001, or leave it out."
    if "token" in reason.lower():
        hint = f"Set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN to the cluster's: {_TOKENS}."
    return UsageError(f"Ray {where}: {reason}", hint)


def _answer(ray: Any, task: Any, versions: dict[str, str]) -> Answer:
    """The Answer of a task that has ended in any way."""
    try:
        returned: str = ray.get(task)
    except ray.exceptions.TaskCancelledError:
        return unanswered()
    except ray.exceptions.RayTaskError as error:
        message = f"the Ray worker could not carry out the task: {type(error.cause).__name__}: {error.cause}"
        hint = "See to the worker's machine: its disk may be full. --executor local does without it."
        return Answer(error=WorkerError(message, hint))
    except ray.exceptions.RayError as error:
        message = f"the Ray worker was lost {_RETRIES + 1} times, the last time with {type(error).__name__}"
        hint = "The machine may have been out of memory: give tasks more room, or run fewer at a time on it."
        return Answer(error=WorkerError(message, hint))
    fields = json.loads(returned)
    if (others := fields.get(ray_worker.OTHERS)) is None:
        return received(returned)
    message = f"the Ray worker on {fields['node']} has {_listed(others)}; here there is {_listed(versions)}"
    packages = f"'torch-memlint[torch,ray]=={versions['memlint']}' torch=={versions['torch']}"
    return Answer(error=WorkerError(message, f"Install the same versions there: pip install {packages}"))


def _listed(versions: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def _cancelled(ray: Any, running: dict[Any, int], versions: dict[str, str]) -> Iterator[tuple[int, Answer]]:
    """Cancel what runs, and give what it answers to that."""
    for each in running:
        ray.cancel(each)
    ended, _others = ray.wait(list(running), num_returns=len(running), timeout=_CANCEL_PATIENCE)
    for each, number in running.items():
        yield number, _answer(ray, each, versions) if each in ended else unanswered()
