"""Modules that recompute only cheap operators in backward, and keep the outputs of expensive ones."""

import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from memlint.whatif.change import Change, Effect, Names, NotApplicableError, model_of

WEIGHT_ARGUMENTS = {"aten.mm.default": 1, "aten.addmm.default": 2, "aten.convolution.default": 1}
"""Position of the weight among the arguments of operators that have one."""
_WIDTH = 88


@dataclass(frozen=True, slots=True)
class KeptOutput:
    """An operator whose outputs are kept."""

    op: str
    """Operator as in `Node.op`."""
    weights: tuple[tuple[int, ...], ...]
    """Shapes of its weight as the operator sees them; empty for every call of the operator."""
    modules: tuple[str, ...]
    """Modules in which it runs: paths relative to the checkpointed module."""

    @property
    def places(self) -> str:
        """Modules in which it runs, those of one list under one name; empty for the checkpointed module itself."""
        return ", ".join(dict.fromkeys(re.sub(r"\b\d+\b", "*", path) for path in self.modules if path))


@dataclass(frozen=True, slots=True)
class CheckpointSelectively(Change):
    """Run the modules at these paths under checkpoint, and keep the outputs of some operators for backward."""

    paths: tuple[str, ...]
    kept: tuple[KeptOutput, ...]
    effect: ClassVar[Effect] = Effect.EXACT

    def describe(self, names: Names) -> str:
        ops = [f"{'some ' if kept.weights else ''}`{kept.op.split('.')[1]}`" for kept in self.kept]
        listed = " and ".join(filter(None, (", ".join(ops[:-1]), ops[-1])))
        return f"checkpoint {names.of_modules(self.paths)}, but keep outputs of {listed}"

    def snippet(self, names: Names) -> list[str]:
        by_weight = any(kept.weights for kept in self.kept)
        imported = ["CheckpointPolicy"] * by_weight + ["checkpoint", "create_selective_checkpoint_contexts"]
        policy = _policy(self.kept) if by_weight else _list(self.kept)
        return [
            "from functools import partial",
            "",
            "import torch",
            f"from torch.utils.checkpoint import {', '.join(imported)}",
            "",
            *policy,
            *_loop(self.paths, names),
            "    module.forward = partial(",
            "        checkpoint, module.forward, use_reentrant=False,",
            "        context_fn=partial(create_selective_checkpoint_contexts, kept),",
            "    )",
        ]

    def after_setup(self, program: Any) -> None:
        model = model_of(program)
        modules = [(path, type(module).__name__) for path, module in model.named_modules()]
        if not {path for path, _ in modules} >= set(self.paths):
            raise NotApplicableError
        # The simulation runs the very code that the Report shows.
        exec("\n".join(self.snippet(Names(modules, {}))), {"model": model})


def _loop(paths: Sequence[str], names: Names) -> list[str]:
    """Return the head of a loop over the modules at these paths; by their class if it has no other instance."""
    kind = dict(names.modules)[paths[0]]
    if {path for path, name in names.modules if name == kind} == set(paths):
        return [f"for module in [each for each in model.modules() if type(each).__name__ == {kind!r}]:"]
    return [*_wrapped("for path in [", paths, "]:"), "    module = model.get_submodule(path)"]


def _list(kept: Iterable[KeptOutput]) -> list[str]:
    return ["kept = [", *(f"    torch.ops.{each.op},{_comment(each)}" for each in kept), "]"]


def _policy(kept: Iterable[KeptOutput]) -> list[str]:
    """Return a policy function that compares the shape of an operator's weight."""
    lines = ["", "def kept(context, op, *args, **kwargs):"]
    for each in kept:
        lines += [f"    if op is torch.ops.{each.op}:{_comment(each)}"]
        if each.weights:
            weight = f"tuple(args[{WEIGHT_ARGUMENTS[each.op]}].shape)"
            lines += [f"        {line}" for line in _wrapped(f"if {weight} in [", each.weights, "]:")]
        lines += [f"{' ' * (12 if each.weights else 8)}return CheckpointPolicy.MUST_SAVE"]
    return [*lines, "    return CheckpointPolicy.PREFER_RECOMPUTE", "", ""]


def _wrapped(before: str, items: Iterable[object], after: str) -> list[str]:
    """Format a Python list between two texts, on as many lines as it takes."""
    text = ", ".join(map(repr, items))
    if len(before + text + after) <= _WIDTH:
        return [before + text + after]
    body = textwrap.wrap(text + ",", _WIDTH, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False)
    return [before, *body, after]


def _comment(kept: KeptOutput) -> str:
    return f"  # {kept.places}" if kept.places else ""
