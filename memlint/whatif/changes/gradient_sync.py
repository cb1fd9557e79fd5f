"""The backward in which ranks reduce their gradients."""

import functools
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar

from memlint.base.patching import patched
from memlint.whatif.change import Change, Effect


@dataclass(frozen=True, slots=True)
class ReduceInEveryBackward(Change):
    """Reduce sharded gradients in every backward, if the program lets FSDP wait for the last of several."""

    text: ClassVar[str] = "reduce gradients in every backward, without `set_requires_gradient_sync(False)` or `no_sync`"
    effect: ClassVar[Effect] = Effect.NUMERICS

    def before_setup(self, _program: Any) -> None:
        self._reduce_from_now_on()

    def after_setup(self, program: Any) -> None:
        """Undo the program's earlier setting, which in a script is known when its first forward begins."""
        from torch.distributed.fsdp import FSDPModule

        self._reduce_from_now_on()
        for module in program.model.modules():
            if isinstance(module, FSDPModule):
                module.set_requires_gradient_sync(True, recurse=False)

    def _reduce_from_now_on(self) -> None:
        from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel

        from memlint.cuda.simulated import simulated

        set_sync = FSDPModule.set_requires_gradient_sync

        @functools.wraps(set_sync)
        def set_requires_gradient_sync(module: Any, _requires: bool, *, recurse: bool = True) -> None:
            set_sync(module, True, recurse=recurse)

        switches = [
            (FSDPModule, "set_requires_gradient_sync", set_requires_gradient_sync),
            (FullyShardedDataParallel, "no_sync", lambda _module: nullcontext()),
        ]
        simulated().exits.enter_context(patched(switches))
