"""The outermost unit of FSDP2, which keeps its parameters gathered by default."""

from dataclasses import dataclass
from typing import Any, ClassVar

from memlint.whatif.change import Change, Effect, NotApplicableError


@dataclass(frozen=True, slots=True)
class ReshardRoot(Change):
    """Free the gathered parameters of outermost units after their forward too."""

    only_frozen: bool = False
    """True to skip models with any trained parameter."""
    text: ClassVar[str] = "call `fully_shard` of the whole model with reshard_after_forward=True"
    effect: ClassVar[Effect] = Effect.EXACT

    def after_setup(self, program: Any) -> None:
        from torch.distributed.fsdp import FSDPModule

        roots: dict[str, FSDPModule] = {}
        for path, module in program.model.named_modules():  # from the outside in
            if isinstance(module, FSDPModule) and not any(f"{path}.".startswith(root) for root in roots):
                roots[f"{path}." if path else ""] = module
        units = [root for root in roots.values() if self._is_meant(root)]
        if not units:
            raise NotApplicableError
        for root in units:
            root.set_reshard_after_forward(True, recurse=False)

    def _is_meant(self, root: Any) -> bool:
        from memlint.accelerator.private.sharding import chooses_itself

        is_trained = any(parameter.requires_grad for parameter in root.parameters())
        return chooses_itself(root) and not (self.only_frozen and is_trained)
