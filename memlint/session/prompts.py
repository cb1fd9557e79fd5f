"""The longest prompt with which a generation fits into its GPU."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from memlint.base.errors import WorkloadError
from memlint.base.units import LARGEST_SIZE
from memlint.generation.traces import lives_of_generation, trace_of
from memlint.memory.allocator.settings import AllocatorSettings
from memlint.memory.devices import Device
from memlint.memory.estimate import Peaks, peaks
from memlint.report.model import Interval
from memlint.report.tables import LongestPrompt
from memlint.scaling.scaled import Lives
from memlint.scaling.search import largest_within
from memlint.session.target import meanwhile
from memlint.targets.workload import Workload
from memlint.workloads.huggingface.texts import positions_of

_PROMPT, _NEW = "prompt", "new_tokens"


def longest_prompt(
    workload: Workload, program: Callable[[Workload], Any], device: Device, own: Lives, config: object
) -> LongestPrompt | None:
    """Search it, at the batch of a completed generation of which `program` builds the program at any of its sizes.

    `own` are the storages of the Workload itself, and `config` the config of its model, which may say for how many
    tokens it has positions. Each other prompt that is looked at is traced. None for what has no prompt that could be
    longer.
    """
    asked = workload.dimensions.get(_PROMPT)
    if asked is None:
        return None
    prompts = _Prompts(workload, program, device)
    most, limit = _most(workload, config), device.total_nbytes
    prompts.known[asked] = prompts.peaks(own)
    fits = prompts.known[asked].device.high <= limit and asked <= most
    low, high = (asked, None) if fits else (1, min(asked, most + 1))
    found = largest_within(limit, prompts.most_device, low, high, most, is_costly=True)
    at_most = prompts.known.get(found.number)
    return LongestPrompt(
        prompt=found.number if at_most is not None else 0,
        batch=workload.batch,
        device=None if at_most is None else Interval(**at_most.device._asdict()),
        of_model=most if most < LARGEST_SIZE else None,
        is_limit=found.is_limit or found.number == most,
    )


def _most(workload: Workload, config: object) -> int:
    """The tokens for which the model has positions beside the new ones; any number for one that does not say."""
    positions = None if config is None else positions_of(config)
    if positions is None:
        return LARGEST_SIZE
    of_decoder = getattr(config, "is_encoder_decoder", False)
    return max(1, positions - (0 if of_decoder else workload.dimensions.get(_NEW, 0)))


@dataclass
class _Prompts:
    """The same generation after other prompts."""

    workload: Workload
    program: Callable[[Workload], Any]
    device: Device
    known: dict[int, Peaks] = field(default_factory=dict)

    def most_device(self, prompt: int) -> int | None:
        """The most bytes on the device after this prompt; None if the model rejects it."""
        if prompt not in self.known:
            here = replace(self.workload, dimensions={**self.workload.dimensions, _PROMPT: prompt})
            try:
                lives = lives_of_generation(trace_of(here, self.program, self._settings, meanwhile))
            except WorkloadError:
                return None
            self.known[prompt] = self.peaks(lives)
        return self.known[prompt].device.high

    def peaks(self, lives: Lives) -> Peaks:
        """The peaks of these storages on its device."""
        return peaks(lives.sizes, lives.events, lives.doubts, self.device, self._settings, lives.streams)

    @property
    def _settings(self) -> AllocatorSettings:
        return AllocatorSettings.parse(self.workload.allocator)
