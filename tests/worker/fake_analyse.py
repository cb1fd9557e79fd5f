"""A child that needs no PyTorch: it answers with what the code of the request calls `said`."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from memlint.worker import child

if TYPE_CHECKING:
    from collections.abc import Callable

    from memlint.worker.dependencies import Watch
    from memlint.worker.jobs import Job, Text
    from memlint.worker.protocol import Request


def main(exchange: str, parent: str, memory_limit: str, bytecode: str) -> NoReturn:
    """Be a Python of its own, as `memlint.session.main.main`."""
    begin(Path(exchange), int(parent), int(memory_limit), bytecode=bool(bytecode))


def preload() -> None:
    """Import nothing more."""


def begin(
    directory: Path,
    parent: int,
    nbytes: int,
    watch: Watch | None = None,
    *,
    bytecode: bool,
    ready: Callable[[], None] = lambda: None,
) -> NoReturn:
    """Be a copy of a server, as `memlint.session.main.begin`."""
    child.run(directory, parent, nbytes, _serve, watch, bytecode=bytecode, ready=ready)


def _serve(request: Request) -> NoReturn:
    def answer(_job: Job) -> Text:
        from memlint.worker.jobs import Text

        said = runpy.run_path(request.path).get("said", "") if request.path else ""
        return Text(text=json.dumps(said))

    child.answer_jobs(answer)
