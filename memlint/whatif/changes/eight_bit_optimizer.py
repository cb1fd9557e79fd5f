"""Adam's moments in 8 bits, by an optimizer of an installed package."""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any, ClassVar, Self

from memlint.memory.records import Category
from memlint.whatif.change import Change, Effect, Names, NotApplicableError, Situation

_PACKAGES = ("bitsandbytes", "torchao")
_NAMES = {"Adam": "Adam8bit", "AdamW": "AdamW8bit"}
_OPTIONS = ("params", "lr", "betas", "eps", "weight_decay")


@dataclass(frozen=True, slots=True)
class EightBitOptimizer(Change):
    """Replace PyTorch's Adam by an 8-bit Adam of bitsandbytes, or else of torchao.

    Not applicable if neither is installed.
    """

    effect: ClassVar[Effect] = Effect.DYNAMICS

    def describe(self, _names: Names) -> str:
        return f"take an 8-bit optimizer, such as {_package() or _PACKAGES[0]}.optim.AdamW8bit"

    @classmethod
    def candidates(cls, situation: Situation) -> Iterator[Self]:
        if situation.is_training and Category.OPTIMIZER_STATE in situation.notable and _package():
            yield cls()

    def after_setup(self, program: Any) -> None:
        name, package = _NAMES.get(type(program.optimizer).__name__), _package()
        if name is None or not package or program.optimizer.defaults.get("amsgrad"):
            raise NotApplicableError
        groups = [{key: group[key] for key in _OPTIONS} for group in program.optimizer.param_groups]
        program.optimizer = getattr(import_module(f"{package}.optim"), name)(groups)


def _package() -> str:
    """Return the installed package; empty if there is none."""
    return next((name for name in _PACKAGES if find_spec(name)), "")
