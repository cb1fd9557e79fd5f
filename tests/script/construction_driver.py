"""Runs one script as `memlint run` does, and writes what it has built: a record, as JSON."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from pydantic import TypeAdapter

from memlint.memory.allocator.settings import AllocatorSettings
from memlint.memory.devices import device_named
from memlint.script.run import Recipient, run_script
from memlint.targets.built import Built
from memlint.targets.script import Script

if TYPE_CHECKING:
    from memlint.script.run import ScriptRun


def main() -> None:
    """Run the script that the options name."""
    options = json.loads(sys.argv[1])
    exchange, path = Path(options["exchange"]), Path(options["script"])
    sys.argv = [str(path), *options["args"]]
    sys.path[0] = str(path.parent)

    class Writer(Recipient):
        def answer(self, run: ScriptRun) -> NoReturn:
            built = run.built()
            adapter = TypeAdapter(Built)
            text = adapter.dump_json(built)
            assert adapter.validate_json(text) == built
            (exchange / "built.json").write_bytes(text)
            sys.stdout.flush()
            os._exit(0)

    script = Script(name="train", path=str(path), arguments=tuple(options["args"]))
    run_script(script, device_named("a100-80gb"), AllocatorSettings(), exchange, Writer())


if __name__ == "__main__":
    main()
