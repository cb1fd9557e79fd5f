"""Runs one script to its end on the virtual accelerator, as `memlint run --whole` does or with nothing that looks on."""

import json
import os
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from memlint.cuda.session import virtual_device
from memlint.memory.allocator.settings import AllocatorSettings
from memlint.memory.devices import device_named
from memlint.script.data import Cut, loaders_in_process
from memlint.script.missing_data import missing_data
from memlint.script.random_weights import random_weights
from memlint.script.run import Recipient, ScriptRun, run_script
from memlint.script.writes import scratch_writes
from memlint.targets.script import Script
from memlint.tracing.recorder import without_collector
from memlint.workloads import torchvision_schemas

DEVICE = device_named("a100-80gb")


def main() -> None:
    """Write the events of a script into a file of `exchange`: bytes of each birth, `~number` of each death."""
    options = json.loads(sys.argv[1])
    exchange = Path(options["exchange"])
    sys.argv = [options["script"], *options["args"]]
    torchvision_schemas.install()
    sys.path[0] = str(Path(options["script"]).parent)

    def write(events: Sequence[int], sizes: Sequence[int]) -> NoReturn:
        told = [sizes[event] if event >= 0 else event for event in events]
        (exchange / "events.json").write_text(json.dumps(told), encoding="utf-8")
        sys.stdout.flush()
        os._exit(0)

    if options["observed"]:
        script = Script(name="train", path=options["script"], whole=True, repeat=True, fake_data=True)

        class Writer(Recipient):
            def answer(self, run: ScriptRun) -> NoReturn:
                assert not run.ending.is_failure, run.ending
                write(run.trace.events, [buffer.nbytes for buffer in run.trace.buffers])

        run_script(script, DEVICE, AllocatorSettings(), exchange, Writer())
    with (
        without_collector(),
        virtual_device(DEVICE, AllocatorSettings()) as ledger,
        scratch_writes(exchange / "scratch", False, (exchange,)) as writes,
        loaders_in_process(Cut(3)),
        missing_data(writes, fake=True),
        random_weights(),
    ):
        module = runpy.run_path(options["script"], run_name="__main__")
        ledger.freeze()
        del module
        write(ledger.events, [birth.nbytes for birth in ledger.births])


if __name__ == "__main__":
    main()
