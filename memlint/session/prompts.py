"""The longest prompt with which a generation fits into its GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from memlint.base.errors import WorkloadError
from memlint.base.units import LARGEST_SIZE
from memlint.generation.traces import is_long, lives_of_generation, trace_of
from memlint.memory.allocator.settings import AllocatorSettings
from memlint.memory.estimate import Peaks, peaks
from memlint.report.model import Interval
from memlint.report.tables import LongestPrompt
from memlint.scaling.scaled import lives_of
from memlint.scaling.search import largest_within
from memlint.session.target import meanwhile
from memlint.tracing.workload_errors import storages_of_workload
from memlint.workloads.huggingface.texts import positions_of

if TYPE_CHECKING:
    from memlint.memory.devices import Device
    from memlint.targets.workload import Workload

_PROMPT, _NEW = "prompt", "new_tokens"


def longest_prompt(workload: Workload, program: Callable[[Workload], Any], device: Device) -> LongestPrompt | None:
    """Search it, at the batch of a completed Workload of which `program` builds the program at any of its sizes.

    Each prompt that is looked at is traced. None for what has no prompt that could be longer. The Workload itself has
    to run.
    """
    own = workload.dimensions.get(_PROMPT) if workload.mode == "generate" else None
    if own is None:
        return None
    prompts = _Prompts(workload, program, device)
    limit = device.total_nbytes
    first = prompts.most_device(own)
    most = prompts.most
    fits = first is not None and first <= limit and own <= most
    low, high = (own, None) if fits else (1, min(own, most + 1))
    found = largest_within(limit, prompts.most_device, low, high, most, is_costly=True)
    at_most = prompts.known.get(found.number)
    return LongestPrompt(
        prompt=found.number if at_most is not None else 0,
        batch=workload.batch,
        device=None if at_most is None else Interval(**at_most.device._asdict()),
        of_model=most if most < LARGEST_SIZE else None,
        is_limit=found.is_limit or found.number == most,
    )


@dataclass
class _Prompts:
    """The same generation after other prompts."""

    workload: Workload
    program: Callable[[Workload], Any]
    device: Device
    known: dict[int, Peaks] = field(default_factory=dict)
    most: int = LARGEST_SIZE
    """The tokens for which the model has positions beside the new ones, once one was traced; else any number."""

    def most_device(self, prompt: int) -> int | None:
        """The most bytes on the device after this prompt; None if the model rejects it."""
        if prompt not in self.known:
            try:
                self.known[prompt] = self._peaks(prompt)
            except WorkloadError:
                return None
        return self.known[prompt].device.high

    def _peaks(self, prompt: int) -> Peaks:
        settings = AllocatorSettings.parse(self.workload.allocator)
        here = replace(self.workload, dimensions={**self.workload.dimensions, _PROMPT: prompt})
        built: list[Any] = []

        def program(workload: Workload) -> Any:
            built.append(self.program(workload))
            return built[-1]

        if is_long(here):
            lives = lives_of_generation(trace_of(here, program, settings, meanwhile))
        else:
            lives = lives_of(storages_of_workload(program(here), self.device, settings))
        config = getattr(getattr(built[0], "model", None), "config", None)
        positions = positions_of(config) if config is not None else None
        if positions is not None:
            of_decoder = getattr(config, "is_encoder_decoder", False)
            self.most = max(1, positions - (0 if of_decoder else self.workload.dimensions.get(_NEW, 0)))
        return peaks(lives.sizes, lives.events, lives.doubts, self.device, settings, lives.streams)
