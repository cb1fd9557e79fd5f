"""Modules whose activations are recomputed in backward."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self

from memlint.base.patching import patched
from memlint.memory.estimate import Estimate
from memlint.memory.records import Trace
from memlint.memory.repeated_modules import is_inside
from memlint.whatif.change import MIN_SHARE, Change, Effect, Names, Situation, modules_at, run_within
from memlint.whatif.changes.selective_checkpoint import CheckpointSelectively
from memlint.whatif.repeated_blocks import blocks_that_save, granularities


@dataclass(frozen=True, slots=True)
class CheckpointModules(Change):
    """Run the modules at these paths under `torch.utils.checkpoint.checkpoint`."""

    paths: tuple[str, ...]
    effect: ClassVar[Effect] = Effect.EXACT
    can_follow_itself: ClassVar[bool] = True

    def describe(self, names: Names) -> str:
        return f"checkpoint {names.of_modules(self.paths)}"

    @classmethod
    def candidates(cls, situation: Situation) -> Iterator[Self]:
        if situation.is_training and not situation.is_in_optimizer:
            estimate = situation.estimate
            least = MIN_SHARE * estimate.requested.estimate
            blocks = [each for each in blocks_that_save(situation.trace, estimate.at_peak) if each.nbytes >= least]
            yield from (cls(each.paths) for each in granularities(blocks))

    def cheaper(self, estimate: Estimate, trace: Callable[[], Trace]) -> Sequence[Change]:
        from memlint.whatif.changes.selective_recompute import cheaper_checkpoints

        blocks = [each for each in blocks_that_save(trace(), estimate.at_peak) if each.paths == self.paths]
        return [
            CheckpointSelectively(each.paths, each.kept) if each.kept else CheckpointModules(each.paths)
            for own in blocks
            for each in cheaper_checkpoints(trace(), own)
        ]

    def joined(self, chosen: Iterable[Change]) -> Self:
        """Return the joined Change: checkpoints of other modules stay."""
        old = (path for change in chosen if isinstance(change, CheckpointModules) for path in change.paths)
        others = [path for path in old if not any(is_inside(path, new) or is_inside(new, path) for new in self.paths)]
        return type(self)((*others, *self.paths))

    def after_setup(self, program: Any) -> None:
        _checkpoint(program, self.paths)


@dataclass(frozen=True, slots=True)
class CheckpointInstead(Change):
    """Run the modules at these paths under checkpoint, in place of everything that the program checkpoints itself."""

    paths: tuple[str, ...]
    effect: ClassVar[Effect] = Effect.EXACT

    def describe(self, names: Names) -> str:
        return f"checkpoint {names.of_modules(self.paths)}, and nothing else"

    def after_setup(self, program: Any) -> None:
        forwards = _checkpoint(program, self.paths)
        run_within(program, partial(_no_other_checkpoints, forwards))


def _checkpoint(program: Any, paths: Sequence[str]) -> list[Callable[..., Any]]:
    """Make each call of these modules a checkpoint of their own `forward`."""
    from torch.utils.checkpoint import checkpoint

    modules = modules_at(program, paths)
    forwards = [module.forward for module in modules]
    for module, forward in zip(modules, forwards, strict=True):
        module.forward = partial(checkpoint, forward, use_reentrant=False)
    return forwards


@contextmanager
def _no_other_checkpoints(forwards: Sequence[Callable[..., Any]]) -> Iterator[None]:
    """Turn other checkpoints, reentrant or not, into plain calls inside the block."""
    from torch.utils import checkpoint as checkpointing

    from memlint.accelerator.private import CHECKPOINTS

    name = next(each for each in CHECKPOINTS if hasattr(checkpointing, each))
    begin = getattr(checkpointing, name)

    def begin_ours(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return begin(function, *args, **kwargs) if function in forwards else iter((None,))

    class Plain:
        """Plain call of the function of a reentrant checkpoint."""

        @staticmethod
        def apply(function: Callable[..., Any], _preserve: bool, *args: Any) -> Any:
            return function(*args)

    ours = {name: begin_ours, "CheckpointFunction": Plain}
    with patched((checkpointing, each, value) for each, value in ours.items()):
        yield
