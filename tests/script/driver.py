"""Runs one script as `memlint run` does, but for its report: the records of what happened go into a file."""

import contextlib
import dataclasses
import faulthandler
import json
import os
import runpy
import sys
import traceback
from pathlib import Path

from memlint.accelerator import state
from memlint.cuda.session import virtual_device
from memlint.libraries import installation
from memlint.memory.devices import device_named
from memlint.script import confinement
from memlint.script.data import Cut, loaders_in_process
from memlint.script.missing_data import missing_data
from memlint.script.namespaces import Isolation
from memlint.script.random_weights import random_weights
from memlint.script.writes import scratch_writes
from memlint.workloads import torchvision_schemas


def line_in(script: str) -> int | None:
    """The line of `script` that runs."""
    frame = sys._getframe()
    while frame is not None and frame.f_code.co_filename != script:
        frame = frame.f_back
    return frame and frame.f_lineno


def switch_off(guards: list[str]) -> None:
    """Let the kernel be one that lacks these guards."""
    lacking = {
        "namespaces": (confinement, "isolate", lambda *_: Isolation()),
        "landlock": (confinement.landlock, "version", lambda: 0),
        "filter": (confinement, "filter_calls", lambda _wanted: False),
    }
    for guard in guards:
        setattr(*lacking[guard])


def main() -> None:
    """Run the script that the options name."""
    faulthandler.enable()
    options = json.loads(sys.argv[1])
    switch_off(options.get("without", ()))
    exchange = Path(options["exchange"])
    sys.dont_write_bytecode = True
    assumptions: list[list[object]] = []
    answer: dict[str, object] = {"assumptions": assumptions, "error": None}
    sys.argv = [options["script"], *options["args"]]
    sys.path[0] = str(Path(options["script"]).parent)
    os.environ.update(dict.fromkeys(("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE"), "1"))
    torchvision_schemas.install()
    installation.install()
    with contextlib.ExitStack() as exits:
        exits.enter_context(virtual_device(device_named("a100-80gb")))
        state.current.assume = lambda text: assumptions.append([text, line_in(options["script"])])
        writes = exits.enter_context(scratch_writes(Path(options["scratch"]), options["kept"], free=[exchange]))
        exits.enter_context(loaders_in_process(Cut(options["limit"]) if "limit" in options else None))
        exits.enter_context(random_weights(options.get("config_of", ())))
        missing = exits.enter_context(missing_data(writes, fake=options.get("fake", False), seq=options.get("seq")))
        try:
            runpy.run_path(options["script"], run_name="__main__")
        except BaseException as error:
            traceback.print_exc()
            answer["error"] = "".join(traceback.format_exception_only(error))
        looked_for = () if missing is None else missing.looked_for()
        assumptions.extend([each.text, each.frame and each.frame.line] for each in looked_for)
        answer["writes"] = [dataclasses.asdict(write) for write in writes.records()]
        answer["connections"] = [dataclasses.asdict(connection) for connection in writes.connections()]
        answer["programs"] = [list(program.command) for program in writes.programs()]
        answer["not_guarded"] = list(writes.confinement.not_guarded())
        (exchange / "answer.json").write_text(json.dumps(answer), encoding="utf-8")
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
