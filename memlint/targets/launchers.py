"""Command lines that start a training script: `accelerate launch`, `torchrun`, `fabric run`, `python -m`, `uv run`.

A launcher sets environment variables, starts its script once per process, and gives it the rest of the command line.
Sources: torch/distributed/run.py and launch.py, deepspeed/launcher/runner.py and launch.py, lightning/fabric/cli.py,
and the pages of uv, pdm, poetry and conda on `run`.
"""

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice, takewhile
from pathlib import Path
from typing import Any

from memlint.base.errors import UsageError
from memlint.source.console_scripts import function_of
from memlint.source.typed_commands import RUNNERS

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_PYTHON = re.compile(r"python[\d.]*w?$")
_PREFIXES = ("env", "exec", "nohup", "time", "sudo", "nice", "srun", "mpirun", "mpiexec", "numactl", "stdbuf", "eval")
"""Programs that run another one, with options of their own before it."""
_MOST_FILES = 100
_MODULES = {
    "accelerate.commands.launch": "accelerate",
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torch.distributed.launch",
    "deepspeed.launcher.runner": "deepspeed",
    "deepspeed": "deepspeed",
}
"""Launchers by the module that starts them."""


@dataclass(frozen=True, slots=True)
class Launch:
    """The program that a command line starts."""

    path: str = ""
    """The script as typed; empty for a module."""
    module: str = ""
    """Module of `python -m`, or the function that a command calls: `package.module:function`."""
    command: str = ""
    """The name of that command; empty without one."""
    arguments: tuple[str, ...] = ()
    """Arguments of the script, with those that the launcher adds."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment variables that the command line sets."""
    ranks: int | None = None
    """Number of processes; None without a launcher, and where the launcher itself has to say it."""
    words: tuple[str, ...] = ()
    """The whole command line."""
    folder: str = "."
    """The directory in which it starts, as a shell script changes to it."""
    accelerate: tuple[str, ...] | None = None
    """Options of `accelerate launch`, which decides on variables and processes by its config; None without it."""


def is_launch(words: Sequence[str]) -> bool:
    """Return True if these words start a script by a launcher or an interpreter, and are no script themselves."""
    first = words[0] if words else ""
    if Path(first).is_file():
        return bool(_PYTHON.search(Path(first).name)) or Path(first).name in _LAUNCHERS
    name = first.rpartition("/")[2]
    is_known = name in _LAUNCHERS or name in RUNNERS or name in _PREFIXES or _PYTHON.match(name) is not None
    return is_known or _ASSIGNMENT.fullmatch(first) is not None or bool(function_of(first))


def launch_of(words: Sequence[str]) -> Launch:
    """Take a command line apart. Raises UsageError if it starts no script."""
    rest, variables = list(words), dict[str, str]()
    while rest:
        assigned, rest = assignments_before(rest)
        variables.update(assigned)
        if not rest:
            break
        name = rest[0].rpartition("/")[2]
        if name not in RUNNERS and name not in _PREFIXES:
            break
        rest = _behind_prefix(rest[1:])
    launch = _launched(rest) if rest else None
    if launch is None:
        raise UsageError(
            f"`{shlex.join(words)}` starts no Python script", "Give the script, or the command that starts it."
        )
    return replace(launch, variables={**variables, **launch.variables}, words=tuple(words))


def fields_of(launch: Launch) -> dict[str, Any]:
    """Return the fields of the Script that a command line starts, but for its path, which is as typed."""
    return {
        "name": launch.command or launch.module or Path(launch.path).stem,
        "module": launch.module,
        "arguments": launch.arguments,
        "ranks": launch.ranks,
        "accelerate": launch.accelerate,
    }


def assignments_before(words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Return the environment variables that a command line sets, and the command behind them."""
    found = list(takewhile(bool, map(_ASSIGNMENT.fullmatch, words)))
    return {each[1]: each[2] for each in found if each}, list(words[len(found) :])


def _behind_prefix(words: list[str]) -> list[str]:
    """Return the command behind the options of a program that runs another one."""
    for number, word in enumerate(words):
        name = word.rpartition("/")[2]
        is_known = name in _LAUNCHERS or name in _PREFIXES or word.endswith(".py") or function_of(word)
        starts = is_known or _PYTHON.match(name)
        if starts or (not word.startswith("-") and _ASSIGNMENT.fullmatch(word)):
            return words[number:]
        if word in ("-m", "--module"):
            return ["python", *words[number:]]
    return []


def _launched(words: list[str]) -> Launch | None:
    name, options = words[0].rpartition("/")[2], words[1:]
    if name.endswith(".py"):
        return Launch(path=words[0], arguments=tuple(options))
    if _PYTHON.match(name):
        launch, _ = _script_in(options)
        return None if launch is None else _through_module(launch)
    if name in _LAUNCHERS:
        return _LAUNCHERS[name](options)
    called = function_of(words[0])
    return Launch(module=called, command=words[0], arguments=tuple(options)) if called else None


def launch_of_module(module: str, arguments: Sequence[str]) -> Launch | None:
    """Return what `python -m module` starts if the module is a launcher; None for any other."""
    name = _MODULES.get(module)
    if name is None:
        return None
    launch = _LAUNCHERS[name](["launch", *arguments] if name == "accelerate" else list(arguments))
    return None if launch is None else replace(launch, words=("-m", module, *arguments))


def _through_module(launch: Launch) -> Launch | None:
    inner = launch_of_module(launch.module, launch.arguments) if launch.module in _MODULES else launch
    return None if inner is None else replace(inner, variables={**launch.variables, **inner.variables})


def _script_in(words: Sequence[str]) -> tuple[Launch | None, list[str]]:
    """Return the script or module in these words, and the options before it."""
    is_module = False
    for number, word in enumerate(words):
        if word in ("-m", "--module"):
            is_module = True
            continue
        behind = tuple(words[number + 1 :])
        options = [each for each in words[:number] if each not in ("-m", "--module")]
        if is_module and not word.startswith("-"):
            return Launch(module=word, arguments=behind), options
        if word.endswith(".py"):
            return Launch(path=word, arguments=behind), options
    return None, []


def _started(words: Sequence[str]) -> tuple[Launch | None, list[str]]:
    """Return what a launcher starts, and its options; argparse takes a `--` right behind the script for its own."""
    launch, options = _script_in(words)
    if launch is not None and launch.arguments[:1] == ("--",):
        launch = replace(launch, arguments=launch.arguments[1:])
    return launch, options


def _accelerate(words: list[str]) -> Launch | None:
    if words[:1] != ["launch"]:
        return None
    launch, options = _started(words[1:])
    return None if launch is None else replace(launch, accelerate=tuple(options))


def _torchrun(words: list[str]) -> Launch | None:
    launch, options = _started(words)
    return None if launch is None else replace(launch, ranks=_processes(options, "nproc-per-node", "nnodes"))


def _distributed_launch(words: list[str]) -> Launch | None:
    launch = _torchrun(words)
    if launch is None or {"--use_env", "--use-env"} & {*words}:
        return launch
    return replace(launch, arguments=(f"{_local_rank_option(launch.path)}=0", *launch.arguments))


def _local_rank_option(path: str) -> str:
    """Return the option by which a script or a module beside it takes its rank: before PyTorch 2 with an underscore."""
    text = ""
    for file in islice((Path(path), *sorted(Path(path).parent.glob("*.py"))), _MOST_FILES):
        with suppress(OSError):
            text += file.read_text(encoding="utf-8", errors="replace")
    return "--local_rank" if "--local_rank" in text and "--local-rank" not in text else "--local-rank"


def _deepspeed(words: list[str]) -> Launch | None:
    launch, options = _started(words)
    if launch is None:
        return None
    ranks = _processes(options, "num-gpus", "num-nodes")
    included = _value(options, "include")
    if included:  # host1:0,1@host2:0,1
        ranks = sum(max(1, len(host.partition(":")[2].split(","))) for host in included.split("@"))
    own = () if "--no_local_rank" in options else ("--local_rank=0",)
    return replace(launch, ranks=ranks, arguments=(*own, *launch.arguments))


def _fabric(words: list[str]) -> Launch | None:
    """`fabric run SCRIPT`, before Lightning 2.2 `lightning run model SCRIPT`, with its options before or behind it."""
    if words[:1] != ["run"]:
        return None
    own: dict[str, str] = {}
    others: list[str] = []
    rest = iter(words[2:] if words[1:2] == ["model"] else words[1:])
    for word in rest:
        key, is_joined, value = word.partition("=")
        name = key.removeprefix("--").replace("-", "_")
        if key.startswith("--") and name in _OF_FABRIC:
            own[name] = value if is_joined else next(rest, "")
        else:
            others.append(word)
    launch, _ = _script_in(others)
    if launch is None:
        return None
    own = {"devices": "1", "num_nodes": "1", **own}
    devices = own["devices"].strip("[],")
    per_node = devices.count(",") + 1 if "," in devices else devices
    variables = {f"LT_{name.upper()}": own[name] for name in _SAID_BY_FABRIC if name in own}
    ranks = _processes([f"--devices={per_node}", f"--num-nodes={own['num_nodes']}"], "devices", "num-nodes")
    return replace(launch, ranks=ranks, variables={"LT_CLI_USED": "1", **variables})


_SAID_BY_FABRIC = "accelerator", "strategy", "devices", "num_nodes", "precision"
"""Options of `fabric run` that it tells its scripts by variables."""
_OF_FABRIC = frozenset((*_SAID_BY_FABRIC, "node_rank", "main_address", "main_port"))

_LAUNCHERS: dict[str, Callable[[list[str]], Launch | None]] = {
    "accelerate": _accelerate,
    "accelerate-launch": lambda words: _accelerate(["launch", *words]),
    "torchrun": _torchrun,
    "torch.distributed.launch": _distributed_launch,
    "deepspeed": _deepspeed,
    "fabric": _fabric,
    "lightning": _fabric,
}


def _processes(options: Sequence[str], per_node: str, nodes: str) -> int:
    """Return the number of all processes; where the machine decides on it (`gpu`, `auto`), there is one per node."""
    counts = (_value(options, name) for name in (per_node, nodes))
    numbers = [re.findall(r"\d+", text or "") for text in counts]
    return max(1, int(numbers[0][-1]) if numbers[0] else 1) * max(1, int(numbers[1][-1]) if numbers[1] else 1)


def _value(options: Sequence[str], name: str) -> str | None:
    """Return the value of an option, which may be written with underscores; None if it is not there."""
    for number, word in enumerate(options):
        key, is_joined, value = word.partition("=")
        if key.lstrip("-").replace("_", "-") == name and key.startswith("-"):
            return value if is_joined else next(iter(options[number + 1 :]), None)
    return None
