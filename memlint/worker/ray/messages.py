"""A Task for another machine, as JSON beside the files of its project, and its Answer as JSON."""

import base64
import contextlib
import json
import os
import pickle
import re
import tempfile
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from memlint.worker.protocol import Answer, Limits, Request, answer_format
from memlint.worker.ray.archive import unpack
from memlint.worker.supervise import Interrupted, carry_out
from memlint.worker.task import Task

_VARIABLES = ("CUBLAS_WORKSPACE_CONFIG", "CUBLASLT_WORKSPACE_SIZE", "CUDA_MODULE_LOADING")
"""Environment variables that change what a step takes; all others are those of the other machine."""


class _Order(BaseModel):
    request: Request
    limits: Limits
    ask: str
    """The function of the task, pickled, as text."""
    child: str
    directory: str
    """The directory in which the command was typed."""
    variables: dict[str, str]


def sent(task: Task) -> str:
    """JSON of `task`, with paths of this machine."""
    variables = {name: os.environ.get(name, "") for name in _VARIABLES}
    return _Order(
        request=task.request,
        limits=task.limits,
        ask=base64.b64encode(pickle.dumps(task.ask)).decode(),
        child=task.child,
        directory=str(Path.cwd()),
        variables=variables,
    ).model_dump_json()


def carried_out(archive: bytes, order: str) -> str:
    """JSON of the Answer to what `sent` made, with its paths; `archive` is what `pack` made of the project.

    The project is unpacked into a directory that is gone when this returns, and its code runs in a child process only.
    KeyboardInterrupt, where it comes while the child runs, becomes the Answer with the child's partial result.
    """
    message = _Order.model_validate_json(order)
    there = Path(message.request.root)
    with tempfile.TemporaryDirectory(prefix="memlint-") as name:
        root = Path(name).resolve() / (there.name or "project")
        unpack(archive, root)
        request = Request.model_validate(moved(message.request.model_dump(mode="json"), there, root))
        here = Path(moved(message.directory, there, root))
        if not here.is_relative_to(root):
            here = root
        here.mkdir(parents=True, exist_ok=True)
        with contextlib.chdir(here):
            try:
                ask = pickle.loads(base64.b64decode(message.ask))
                moved_task = Task(request, message.limits, ask, child=message.child)
                answer = carry_out(moved_task, environment=message.variables)
            except Interrupted as error:
                answer = error.answer
        returned = moved(answer_format().dump_python(answer, mode="json"), root, there)
    return json.dumps(returned)


def received(returned: str) -> Answer:
    """The Answer that `carried_out` gave."""
    return answer_format().validate_json(returned)


def moved(value: Any, before: Path, after: Path) -> Any:
    """`value` with the directory `before` replaced by `after` in every text in it, and in the names of its tables."""
    return _moved(value, re.compile(rf"(?<![\w./-]){re.escape(str(before))}(?![\w-]|\.\w)"), str(after))


def _moved(value: Any, before: re.Pattern[str], after: str) -> Any:
    if isinstance(value, str):
        return before.sub(lambda _match: after, value)
    if isinstance(value, dict):
        return {_moved(key, before, after): _moved(item, before, after) for key, item in value.items()}
    return [_moved(item, before, after) for item in value] if isinstance(value, list | tuple) else value
