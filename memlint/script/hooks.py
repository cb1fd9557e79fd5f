"""Hooks for a script's steps and phases, besides kernels and modules: optimizers, files, other libraries.

PyTorch's own hooks of optimizers, which end a step, are in `memlint.tracing.recorder.observed`. The hooks here follow
libraries that train, generate or save in a way of their own.
"""

import functools
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch

from memlint.accelerator import state
from memlint.base.after_import import after_import
from memlint.base.patching import Patch, patched
from memlint.memory.records import Phase
from memlint.script.recorder import ScriptRecorder
from memlint.workloads import availability


def hooks(recorder: ScriptRecorder) -> list[Patch]:
    """Return patches that report created optimizers, saved files and questions for a GPU to the recorder."""
    init = torch.optim.Optimizer.__init__

    def making(self: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> None:
        recorder.made.add(self)
        recorder.construction.note_optimizer(self)
        init(self, *args, **kwargs)

    _follow_libraries(recorder)
    return [
        *availability.noting(),
        *recorder.construction.patches(),
        *recorder.shown.patches(),
        (torch.optim.Optimizer, "__init__", making),
        *((torch.optim.Optimizer, f"_optimizer_{kind}_hooks", _NoHooks()) for kind in _KINDS),
        (torch, "save", _in_phase(recorder, Phase.SAVING, torch.save)),
    ]


class _NoHooks:
    """The hooks of an optimizer that does not begin as those of PyTorch do, and has none."""

    def __get__(self, optimizer: torch.optim.Optimizer | None, _kind: type) -> dict[int, Any]:
        if optimizer is None:
            raise AttributeError
        name = type(optimizer).__name__
        state.assume_once(f"{name} makes no Optimizer of itself, and needs none, as before PyTorch 2: it has no hooks")
        return OrderedDict()


_KINDS = tuple(f"{of}_{when}" for of in ("step", "state_dict", "load_state_dict") for when in ("pre", "post"))
"""Hooks of an optimizer, by what they surround."""


def _in_phase(recorder: ScriptRecorder, phase: Phase, function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the function so that its kernels belong to `phase`."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with patched([(recorder.attribution, "section", phase)]):
            return function(*args, **kwargs)

    return call


def _follow_libraries(recorder: ScriptRecorder) -> None:
    """Make the generating and saving functions of libraries phases of their own."""

    def saving(module: Any) -> None:
        module.save_file = _in_phase(recorder, Phase.SAVING, module.save_file)

    def generating(module: Any) -> None:
        mixin = module.GenerationMixin
        generate = mixin.generate

        @functools.wraps(generate)
        def generating_once(*args: Any, **kwargs: Any) -> Any:
            recorder.own_generations.close()
            with recorder.generating():
                output = generate(*args, **kwargs)
            recorder.has_generated = True
            return output

        mixin.generate = generating_once

    def stopping(module: Any) -> None:
        criteria = module.StoppingCriteriaList
        ask = criteria.__call__

        @functools.wraps(ask)
        def call(self: Any, input_ids: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            recorder.pace.generated(input_ids.shape[1], self.max_length)
            return ask(self, input_ids, *args, **kwargs)

        criteria.__call__ = call

    after_import("safetensors.torch", saving)
    after_import("transformers.generation.utils", generating)
    after_import("transformers.generation.stopping_criteria", stopping)
