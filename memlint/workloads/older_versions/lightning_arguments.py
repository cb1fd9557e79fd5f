"""Arguments and ways of Lightning that it refuses here: what only version 1 has, and more GPUs than there are."""

from __future__ import annotations

import argparse
import ast
import functools
import inspect
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from memlint.workloads.older_versions.renames import ARGUMENTS

_SET = "_set_hparams"
"""The method of a model that keeps its settings."""


def add_argparse_args(cls: Any, /, parent_parser: argparse.ArgumentParser, **_options: Any) -> argparse.ArgumentParser:
    """Return the parser with an option for each argument of the Trainer, those of version 1 included."""
    defaults = {name: each.default for name, each in _parameters(cls).items()}
    for name in {**defaults, **ARGUMENTS["Trainer"]}:
        if f"--{name}" not in parent_parser._option_string_actions and name != "tokenizer":
            default = defaults.get(name)
            parent_parser.add_argument(f"--{name}", type=_value, nargs="?", const=True, default=default)
    return parent_parser


def from_argparse_args(cls: Any, /, args: argparse.Namespace | argparse.ArgumentParser, **named: Any) -> Any:
    """Return the Trainer with those of the parsed arguments that it takes, by their present names."""
    if isinstance(args, argparse.ArgumentParser):
        args = args.parse_args()
    given = {**{name: value for name, value in vars(args).items() if value is not None}, **named}
    taken = {name: value for name, value in given.items() if name in _parameters(cls)}
    for name, value in given.items():
        new = ARGUMENTS["Trainer"][name].name if name in ARGUMENTS["Trainer"] else ""
        if new in _parameters(cls) and value:
            taken[new] = value
    return cls(**taken)


def _parameters(cls: Any) -> dict[str, inspect.Parameter]:
    return {name: each for name, each in inspect.signature(cls.__init__).parameters.items() if name != "self"}


def _value(text: str) -> Any:
    """Return the number, truth value or text of an option; a list of GPUs, `0,`, stays a text."""
    if "," not in text:
        with suppress(ValueError, SyntaxError):
            return ast.literal_eval({"true": "True", "false": "False", "none": "None"}.get(text.lower(), text))
    return text


def without_hook(hook: str, module: Any) -> None:
    """Let Lightning leave out a hook of models that runs when an epoch is over, before it looks at them."""
    verify = module._verify_loop_configurations

    @functools.wraps(verify)
    def verify_without(trainer: Any) -> None:
        for kind in type(trainer.lightning_module).__mro__:
            if hook in vars(kind):
                delattr(kind, hook)
        verify(trainer)

    package = module.__name__.rpartition(".")[0]
    for each in filter(None, (module, sys.modules.get(f"{package}.trainer"))):
        if hasattr(each, verify.__name__):
            setattr(each, verify.__name__, verify_without)


def with_settable_hparams(_name: str, module: Any) -> None:
    """Let models be given their `hparams`, as before version 1.0."""
    mixin = module.HyperparametersMixin
    mixin.hparams = mixin.hparams.setter(lambda model, given: getattr(model, _SET)(given))


def with_strategy(accelerator: str, module: Any) -> None:
    """Let the Trainer take as a strategy what was the name of an accelerator."""

    def changed(named: dict[str, Any]) -> dict[str, Any]:
        if named.get("accelerator") != accelerator:
            return named
        strategy = "ddp" if accelerator.startswith("ddp") else "auto"
        return named | {"accelerator": "auto", "strategy": named.get("strategy") or strategy}

    _change_arguments(module, changed)


def with_usual_strategy(_none: str, module: Any) -> None:
    """Let the Trainer choose where it is given no strategy."""
    _change_arguments(module, lambda named: named | {"strategy": named.get("strategy") or "auto"})


def with_one_device(_numbers: str, module: Any) -> None:
    """Let the Trainer have the one GPU that is there in place of several."""
    _change_arguments(module, lambda named: named | {"devices": 1})


SANITY_CHECK = "_run_sanity_check"
"""Name of the method of Lightning's Trainer that validates on few batches before it trains."""


def without_sanity_check(_name: str, module: Any) -> None:
    """Let the Trainer train without that check."""
    setattr(module.Trainer, SANITY_CHECK, lambda _trainer: None)


_CALLS_HOOKS = "_call_lightning_module_hook"
"""Name of the function of Lightning that calls the hooks of a model."""


def with_index_of_loader(hook: str, module: Any) -> None:
    """Let a hook of the user's models take the number of the loader behind the batch, as before version 2."""
    call = getattr(module, _CALLS_HOOKS)

    @functools.wraps(call)
    def call_with_index(trainer: Any, name: str, *arguments: Any, **named: Any) -> Any:
        return call(trainer, name, *arguments, *([0] if name == hook else []), **named)

    setattr(module, _CALLS_HOOKS, call_with_index)


_NUMBER = "optimizer_idx"
"""Name of the argument of `training_step` for the number of the optimizer, before version 2."""


def with_several_optimizers(_name: str, module: Any) -> None:
    """Let a model train with several optimizers by its `training_step` alone, one after the other as in version 1.

    So does one with an optimizer whose `training_step` takes its number.
    """
    validate = module._validate_multiple_optimizers_support

    @functools.wraps(validate)
    def train_with_each(optimizers: list[Any], model: Any) -> None:
        takes_number = _NUMBER in inspect.signature(model.training_step).parameters
        if not model.automatic_optimization or not (takes_number or len(optimizers) > 1):
            validate(optimizers, model)
            return
        step_of_one, model.automatic_optimization = model.training_step, False

        def training_step(batch: Any, batch_idx: int) -> None:
            for number, optimizer in enumerate(model.optimizers()):
                model.toggle_optimizer(optimizer)
                result = step_of_one(batch, batch_idx, number)
                loss = result["loss"] if isinstance(result, dict) else result
                if loss is not None:
                    optimizer.zero_grad()
                    model.manual_backward(loss)
                    optimizer.step()
                model.untoggle_optimizer(optimizer)

        model.training_step = training_step

    setattr(module, validate.__name__, train_with_each)


def _change_arguments(module: Any, changed: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    init = module.Trainer.__init__

    @functools.wraps(init)
    def __init__(self: Any, *arguments: Any, **named: Any) -> None:  # noqa: N807 -- it stands for it
        init(self, *arguments, **changed(named))

    module.Trainer.__init__ = __init__


RESTORED = {
    "Trainer.add_argparse_args": classmethod(add_argparse_args),
    "Trainer.from_argparse_args": classmethod(from_argparse_args),
}
"""Methods by their qualified names."""
