"""Other options and settings of what spreads a model over ranks: FSDP and DistributedDataParallel."""

import functools
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from memlint.base.patching import patched
from memlint.whatif.change import Change, Effect, NotApplicableError, roots_of_script

Options = dict[str, Any]


class Rewrapping(Change):
    """Base of Changes that call `fully_shard` with other options while the program wraps its model."""

    __slots__ = ()

    def options(self, module: Any, options: Options) -> Options | None:
        """Return the options of `fully_shard` for a module, in place of `options`; None leaves them unchanged."""
        raise NotImplementedError

    def before_setup(self, program: Any) -> None:
        """Let calls of `fully_shard` use other options until the simulation ends."""
        from torch.distributed import fsdp

        from memlint.cuda.facade.early_names import patched_everywhere
        from memlint.cuda.simulated import simulated

        program.rewrapped = []
        shard: Any = fsdp.fully_shard

        @functools.wraps(shard)
        def fully_shard(module: Any, **options: Any) -> Any:
            other = self.options(module, options)
            if other is not None:
                program.rewrapped.append(module)
            return shard(module, **(options if other is None else other))

        simulated().exits.enter_context(patched_everywhere([(fsdp, "fully_shard", fully_shard)]))

    def after_setup(self, program: Any) -> None:
        if not program.rewrapped:
            raise NotApplicableError


@dataclass(frozen=True, slots=True)
class ShardBlocks(Rewrapping):
    """Make each repeated block a unit of its own, if the whole model is one unit."""

    text: ClassVar[str] = "call `fully_shard` on each repeated block before the whole model"
    effect: ClassVar[Effect] = Effect.EXACT

    def options(self, module: Any, options: Options) -> Options | None:
        from torch.distributed.fsdp import FSDPModule, fully_shard

        from memlint.distributed.wrapping import blocks

        paths = [] if isinstance(module, list) else blocks(module)
        if not paths or any(isinstance(each, FSDPModule) for each in module.modules()):
            return None
        for path in paths:
            fully_shard(module.get_submodule(path), **options)
        return options


@dataclass(frozen=True, slots=True)
class ReshardAfterForward(Rewrapping):
    """Free gathered parameters after the forward of their unit."""

    text: ClassVar[str] = "call `fully_shard` without `reshard_after_forward=False`"
    effect: ClassVar[Effect] = Effect.EXACT

    def options(self, _module: Any, options: Options) -> Options | None:
        return {**options, "reshard_after_forward": True} if options.get("reshard_after_forward") is False else None


@dataclass(frozen=True, slots=True)
class ReduceInParameterDtype(Rewrapping):
    """Reduce gradients in the dtype in which parameters are gathered."""

    text: ClassVar[str] = "leave `reduce_dtype` out of the MixedPrecisionPolicy"
    effect: ClassVar[Effect] = Effect.NUMERICS

    def options(self, _module: Any, options: Options) -> Options | None:
        policy = options.get("mp_policy")
        wide, narrow = getattr(policy, "reduce_dtype", None), getattr(policy, "param_dtype", None)
        if policy is None or wide is None or narrow is None or wide.itemsize <= narrow.itemsize:
            return None
        return {**options, "mp_policy": replace(policy, reduce_dtype=None)}


@dataclass(frozen=True, slots=True)
class WithoutOffload(Rewrapping):
    """Keep shards of parameters, gradients and optimizer state on the GPU."""

    text: ClassVar[str] = "call `fully_shard` without an offload policy"
    effect: ClassVar[Effect] = Effect.EXACT

    def options(self, _module: Any, options: Options) -> Options | None:
        from torch.distributed.fsdp import CPUOffloadPolicy

        if not isinstance(options.get("offload_policy"), CPUOffloadPolicy):
            return None
        return {name: value for name, value in options.items() if name != "offload_policy"}

    def after_setup(self, program: Any) -> None:
        """Move the model, whose shards were to stay on the host, to the GPU."""
        Rewrapping.after_setup(self, program)
        program.model.to("cuda")


class WrappedOtherwise(Change):
    """Base of Changes that construct DistributedDataParallel with other options."""

    __slots__ = ()
    options: ClassVar[Options]
    """Options in place of the program's own."""

    def before_setup(self, program: Any) -> None:
        """Let wrappers be made with other options until the simulation ends."""
        from memlint.cuda.simulated import simulated
        from memlint.distributed import data_parallel

        program.rewrapped = []
        wrap = data_parallel.init_wrapper

        def init(module: Any, /, *args: Any, **options: Any) -> None:
            if self._changes(options):
                program.rewrapped.append(module)
            wrap(module, *args, **{**options, **self.options})

        simulated().exits.enter_context(patched([(data_parallel, "init_wrapper", init)]))

    def after_setup(self, program: Any) -> None:
        """Make the wrappers of a script again, which exist already."""
        from torch.nn.parallel import DistributedDataParallel

        from memlint.accelerator.private.distributed import comm_hooks
        from memlint.distributed.data_parallel import wrap_again

        modules = [each for root in roots_of_script(program) for each in root.modules()]
        wrappers = [each for each in modules if isinstance(each, DistributedDataParallel)]
        others = [each for each in wrappers if self._changes(vars(each)["wrapped_with"])]
        if any(comm_hooks(each) for each in others):
            raise NotApplicableError
        for each in others:
            wrap_again(each, **self.options)
        if not others and not getattr(program, "rewrapped", ()):
            raise NotApplicableError

    def _changes(self, options: Options) -> bool:
        return any(bool(options.get(name)) != value for name, value in self.options.items())


@dataclass(frozen=True, slots=True)
class GradientsAsBucketViews(WrappedOtherwise):
    """Let gradients be views of the buckets of DistributedDataParallel."""

    text: ClassVar[str] = "construct DistributedDataParallel with gradient_as_bucket_view=True"
    effect: ClassVar[Effect] = Effect.EXACT
    options: ClassVar[Options] = {"gradient_as_bucket_view": True}


@dataclass(frozen=True, slots=True)
class WithoutUnusedSearch(WrappedOtherwise):
    """Assume that every step uses all parameters, so that DistributedDataParallel returns outputs without a copy."""

    text: ClassVar[str] = "construct DistributedDataParallel without find_unused_parameters and static_graph"
    effect: ClassVar[Effect] = Effect.EXACT
    options: ClassVar[Options] = {"find_unused_parameters": False, "static_graph": False}


@dataclass(frozen=True, slots=True)
class CheckpointAroundHooks(Change):
    """Recompute hooks of checkpointed modules, such as those of tensor parallel, together with the modules."""

    text: ClassVar[str] = "wrap modules for checkpointing after `parallelize_module`"
    effect: ClassVar[Effect] = Effect.EXACT

    def after_setup(self, program: Any) -> None:
        from torch.distributed.fsdp import FSDPModule

        from memlint.accelerator.private import forward_pre_hooks, hook_tables
        from memlint.accelerator.private.sharding import CheckpointWrapper, wrapped_module

        wrappers = [each for each in program.model.modules() if isinstance(each, CheckpointWrapper)]
        hooked = [each for each in wrappers if forward_pre_hooks(each) and not isinstance(each, FSDPModule)]
        for wrapper in hooked:
            for hooks, inner in zip(hook_tables(wrapper), hook_tables(wrapped_module(wrapper)), strict=True):
                inner.update(hooks)
                hooks.clear()
        if not hooked:
            raise NotApplicableError


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
