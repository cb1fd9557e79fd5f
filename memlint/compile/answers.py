"""Questions about the GPU in compiled code: TorchDynamo asks once, and takes the answer for a constant.

It knows PyTorch's own functions by what they are. While a GPU is simulated others stand in their places.
"""

from functools import cache
from typing import Any

from memlint.accelerator.private.compilation import FOLDED, RULES, constant_types, folding, rules, tracing_rules
from memlint.base.patching import Patch
from memlint.cuda.facade.queries import Properties
from memlint.cuda.simulated import Simulated

constant_types.add(Properties)


def patches(running: Simulated) -> list[Patch]:
    """Patches while a program that compiles runs: owner, name, replacement."""
    folded = getattr(folding, FOLDED)
    functions = [each for each in running.facade if callable(each.original) and callable(each.value)]
    asked = {each.value: each.original for each in functions if each.original in folded}

    @cache
    def known() -> dict[Any, Any]:
        """The rules are collected when code is compiled, while PyTorch's own functions are in their places."""
        own = rules()
        return own | {value: own[original] for value, original in asked.items() if original in own}

    return [(tracing_rules, RULES, known), (folding, FOLDED, folded | dict.fromkeys(asked))]
