"""Everything process-wide that is set in a process before any code of its request runs."""

from __future__ import annotations

import math
import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from memlint.memory.devices import Device, device_named
from memlint.source.required_packages import required_packages
from memlint.targets.workload import DEFAULT_GPU
from memlint.worker.child import write_compiling
from memlint.workloads import availability, login_name, open_files, torchvision_schemas, user_errors
from memlint.workloads.older_versions import former_transformers
from memlint.workloads.placeholders.absent_packages import is_missing
from memlint.workloads.placeholders.finders import expect, expect_in_script
from memlint.workloads.placeholders.own_project import find_project
from memlint.workloads.stated_configs import state_configs

if TYPE_CHECKING:
    from memlint.config import Op
    from memlint.targets.script import Script
    from memlint.worker.protocol import Request


@dataclass(frozen=True, slots=True)
class ProcessSetup:
    """The surroundings of the user's code in its process, whichever command it runs for; `arm` sets them."""

    root: Path
    """The project: its packages are found as if it were installed."""
    stubs: Sequence[str] = ()
    """Packages that placeholders replace, installed or not."""
    configs: Sequence[tuple[str, str]] = ()
    """Names of models and checkpoints that are not here, with their settings."""
    _: KW_ONLY
    command: tuple[str, str] = ("memlint check FILE", "")
    """The command that hints tell the user to type, and what stands behind its options."""
    device: Device | None = None
    """The GPU that files find while they are imported outside any simulation; None where they look for themselves."""
    script: Script | None = None
    """A script that runs as `__main__`: it has variables of its rank, and is not imported again without a package."""
    simulates: bool = True
    """False where a step runs for real: libraries and `torch.compile` are then the installed ones."""
    compile_seconds: float | None = math.inf
    """Seconds of all compilations of one simulation together; None: `torch.compile` compiles nothing."""
    ops: Sequence[Op] = ()
    """Operators of the project's configuration."""

    @classmethod
    def of_target(cls, request: Request) -> Self:
        """For files that are imported, and Workloads that are traced."""
        device = device_named(request.settings.gpu or DEFAULT_GPU)
        return replace(
            cls._simulated(request), command=(f"memlint check {shlex.quote(request.target)}", ""), device=device
        )

    @classmethod
    def of_script(cls, request: Request, script: Script) -> Self:
        """For `script`, which runs on a simulated device from its first line on."""
        typed = script.command
        if script.path and not script.typed:
            typed = shlex.join((os.path.relpath(script.path, script.folder or None), *script.arguments))
        return replace(cls._simulated(request), command=("memlint run", typed), script=script)

    @classmethod
    def of_predictions(cls, request: Request, gpu: str) -> Self:
        """For Workloads of any files of the project, traced on `gpu`."""
        return replace(cls._simulated(request), device=device_named(gpu))

    @classmethod
    def of_real_step(cls, request: Request) -> Self:
        """For files that are imported, and Workloads run on a device that is there."""
        return cls(Path(request.root), request.settings.stub, request.settings.config_of, simulates=False)

    @classmethod
    def _simulated(cls, request: Request) -> Self:
        settings = request.settings
        tables = {table.get("compile") for table in settings.workload}
        is_eager = settings.compile == "off" and tables <= {None, "off"}
        # A script's own time limit does not wait: it is left time to go on eagerly.
        share = 1 if request.script is None else 0.5
        seconds = None if is_eager else share * settings.timeout
        return cls(Path(request.root), settings.stub, settings.config_of, compile_seconds=seconds, ops=settings.op)

    def arm(self) -> None:
        """Set it in this process, for good. Raises UsageError where an operator of the configuration makes no sense."""
        torchvision_schemas.install()
        former_transformers.install()
        login_name.name_without_terminal()
        open_files.raised_as_far_as_it_goes()
        user_errors.answer_to(*self.command)
        if self.simulates:
            self._simulate()
        if self.script is not None:
            self._expect_script(self.script)
            return
        state_configs(self.configs)
        find_project(self.root)
        expect(self.stubs)
        if self.device is not None:
            availability.expect(self.device)

    def _simulate(self) -> None:
        # These change PyTorch, which a real step must not see.
        from memlint.accelerator import lazy_imports, private  # noqa: PLC0415
        from memlint.compile import requests  # noqa: PLC0415
        from memlint.libraries import installation  # noqa: PLC0415
        from memlint.workloads.safetensors_files import save_without_memory  # noqa: PLC0415

        save_without_memory()
        if self.compile_seconds is None:
            lazy_imports.run_eagerly()
        else:
            requests.install(self.compile_seconds, write_compiling)
        installation.install(self.ops)
        private.keep_script_executor()
        private.let_lazy_parameters_be_asked()

    def _expect_script(self, script: Script) -> None:
        """Let the script do without packages, and find its project as where that is installed or on PYTHONPATH."""
        from memlint.script.counters import count_nothing  # noqa: PLC0415 -- as above
        from memlint.script.hydra_plugins import stand_in_for_plugins  # noqa: PLC0415 -- as above
        from memlint.script.named_modules import NamedModules  # noqa: PLC0415 -- as above
        from memlint.script.processes import set_variables  # noqa: PLC0415 -- as above
        from memlint.script.sentences import tell_sentences_apart  # noqa: PLC0415 -- as above
        from memlint.script.trackers import draw_in_any_style, silence_trackers, write_without_tensorflow  # noqa: PLC0415 -- as above

        set_variables(script)
        stand_in_for_plugins()
        count_nothing()
        tell_sentences_apart()
        silence_trackers()
        draw_in_any_style()
        write_without_tensorflow()
        file = Path(script.path or os.curdir).absolute()
        above = [folder for folder in file.parents if folder.is_relative_to(self.root)]
        folders = list(dict.fromkeys((Path.cwd(), self.root, self.root / "src", *above)))
        find_project(self.root, folders)
        sys.meta_path.append(NamedModules(folders))

        def required() -> list[str]:
            return required_packages(file, self.root, is_missing) if script.path else []

        expect_in_script(self.stubs, required, quiet=script.builds_only)
