"""The environment in which a launcher starts its script: the variables of the command line, and those of accelerate.

accelerate itself is asked: its launcher reads the options and the config file, sets its variables, and would then start
processes. There it is stopped.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import torch.distributed.run

from memlint.base.errors import WorkloadError
from memlint.base.ownership import count_as_users
from memlint.base.patching import patched
from memlint.source.required_packages import required_packages
from memlint.workloads.missing_modules import remedy
from memlint.workloads.placeholders.absent_packages import is_missing
from memlint.workloads.user_errors import missing_package

if TYPE_CHECKING:
    from memlint.targets.script import Script

_LAUNCH = "accelerate.commands.launch"
_CONFIGS = ("*accelerate*.y*ml", "*accelerate*/*.y*ml", "*/*accelerate*/*.y*ml", "*/*accelerate*.y*ml")
"""Patterns of where projects keep the configs of accelerate."""
_MOST_NAMED = 3
_ASKS = ("is_bf16_available", "check_cuda_p2p_ib_support")
"""Questions of the launcher about the GPUs of this machine; all that are simulated can do it."""


class _StartedError(BaseException):
    """accelerate would start processes now."""

    def __init__(self, variables: dict[str, str], num_processes: int | None) -> None:
        super().__init__()
        self.variables, self.num_processes = variables, num_processes


def launched(script: Script) -> Script:
    """Set the environment variables of the script's launcher, and return the script with its number of ranks.

    An installed package that is the script, as of `-m whisper` or `yolo`, counts as the user's code. Raises
    WorkloadError for a config that accelerate refuses.
    """
    os.environ.update(script.variables)
    added = dict(script.variables).get("PYTHONPATH", "").split(os.pathsep)
    sys.path[1:1] = [os.path.abspath(place) for place in added if place]  # noqa: PTH100 -- as Python does
    package = script.package
    if package and package not in sys.modules and (spec := importlib.util.find_spec(package)) is not None:
        for folder in spec.submodule_search_locations or ():
            count_as_users(folder)
    if script.accelerate is None:
        return script
    started = _started_by_accelerate(script, script.accelerate)
    os.environ.update(started.variables)
    return script if script.ranks is not None else script.model_copy(update={"ranks": started.num_processes})


def _started_by_accelerate(script: Script, options: tuple[str, ...]) -> _StartedError:
    try:
        launch = importlib.import_module(_LAUNCH)
    except ImportError as error:
        install = f"Install it where memlint runs, {sys.prefix}: pip install --upgrade accelerate"
        raise WorkloadError(
            f"`accelerate launch` cannot be asked what it does: {error}",
            _mending(script, error) if missing_package(error) else install,
        ) from error
    own = ("--module", script.module) if script.module else (script.path,)
    yes = [(launch, name, lambda *_, **__: True) for name in _ASKS if hasattr(launch, name)]
    stops = [(torch.distributed.run, "run", _run), (subprocess, "Popen", _start)]
    try:
        with patched([*yes, *stops]):
            launch.launch_command(launch.launch_command_parser().parse_args([*options, *own, *script.arguments]))
    except _StartedError as started:
        return started
    except (Exception, SystemExit) as error:
        raise WorkloadError(f"`accelerate launch` refuses: {error}", _mending(script, error)) from error
    raise WorkloadError("`accelerate launch` starts no process", "Give the script itself: memlint run train.py.")


def _mending(script: Script, error: BaseException) -> str:
    """Return what to type: an installation of the missing package and of all that the script wants beside it."""
    name = missing_package(error)
    if not name:
        known = sorted(os.path.relpath(each) for glob in _CONFIGS for each in Path.cwd().glob(glob))[:_MOST_NAMED]
        has_own = bool(known) and "--config_file" in (script.accelerate or ())
        return "Correct its options or its config." + (f" The project has {', '.join(known)}." if has_own else "")
    file = Path(script.path).absolute()
    others = required_packages(file, Path.cwd(), is_missing) if script.path else []
    return remedy(name, str(file), others)


def _run(arguments: Any) -> NoReturn:
    nodes = str(getattr(arguments, "nnodes", 1)).rpartition(":")[2]
    raise _StartedError(dict(os.environ), max(1, int(arguments.nproc_per_node)) * int(nodes or 1))


def _start(_command: object, env: dict[str, str] | None = None, **_options: object) -> NoReturn:
    raise _StartedError(dict(env or os.environ), None)
