"""A declaration to be filled in, for a model that cannot be analysed as it stands: its own names, and best guesses."""

import sys
from dataclasses import replace
from pathlib import Path

from torch import nn

from memlint.base.errors import MemlintError
from memlint.tracing.records import Assumption
from memlint.workloads.build.construct import complete
from memlint.workloads.guess.arguments import MissingArgumentsError, arguments_for
from memlint.workloads.guess.inputs import NoInputsError
from memlint.workloads.guess.parameter_names import guess_input
from memlint.workloads.loading import load_object
from memlint.workloads.model_sizes import ModelSizes
from memlint.workloads.plain_values import parameters, plain_value
from memlint.workloads.pyproject import render_declaration
from memlint.workloads.spec import CONSTANT, InputSpec, Workload
from memlint.workloads.target import parse_target

_GUESSED = "The arguments and shapes below are guesses: put your own in their place."


def skeleton(workload: Workload, root: Path, error: MemlintError) -> str:
    """A table with arguments and inputs, or where an argument is no plain value a function; `error` as a comment.

    With the guessed arguments the model is built and called if that is possible: its layers then say what it takes.
    Raises MemlintError where the target cannot be loaded.
    """
    value = load_object(parse_target(workload.target, Path.cwd()), root)
    taken = parameters(value) if callable(value) else {}
    guesses = {name: plain_value(taken[name]) for name in _missing(value, workload)}
    if None not in guesses.values():
        assumptions: tuple[Assumption, ...] = ()
        filled = replace(workload, arguments={**workload.arguments, **guesses})
        try:
            filled, assumptions = complete(filled, root)
        except NoInputsError as failure:
            filled = replace(filled, inputs=failure.specs)
        except MemlintError:
            filled = replace(filled, inputs=_inputs_by_name(value) or None)
        comments = [Assumption(text, None) for text in (error.message, _GUESSED)]
        return render_declaration(filled, (*comments, *assumptions), root)
    return _as_function(workload, error, guesses, _inputs_by_name(value))


def _missing(value: object, workload: Workload) -> tuple[str, ...]:
    """Arguments for which nothing is found."""
    if not callable(value):
        return ()
    module = sys.modules.get(getattr(value, "__module__", ""))
    try:
        next(arguments_for(value, workload, vars(module) if module else {}), None)
    except MissingArgumentsError as error:
        return error.names
    except MemlintError:
        pass
    return ()


def _inputs_by_name(value: object) -> tuple[InputSpec, ...]:
    """What the names of `forward`'s parameters say."""
    forward = getattr(value, "forward", None)
    if not isinstance(value, type) or forward is None:
        return ()
    nothing = nn.Module()
    required = [each for each in list(parameters(forward).values())[1:] if each.default is each.empty]
    names = frozenset(each.name for each in required)
    return tuple(guess_input(each, nothing, names, ModelSizes(nothing)) for each in required)


def _as_function(
    workload: Workload, error: MemlintError, guesses: dict[str, object], inputs: tuple[InputSpec, ...]
) -> str:
    """A `memlint_workload` for the model's file, with `...` where an object belongs."""
    arguments = ", ".join(f"{name}={'...' if value is None else repr(value)}" for name, value in guesses.items())
    tensors = ", ".join(f'"{spec.name}": {_as_python(spec)}' for spec in inputs)
    return "\n".join(
        [
            f"# {' '.join(error.message.split())}",
            f"# {_GUESSED} This goes into {Path(workload.path).name}.",
            "def memlint_workload(batch):",
            f"    return {workload.qualname}({arguments}), {{{tensors}}}",
            "",
        ]
    )


def _as_python(spec: InputSpec) -> str:
    if spec.dtype == CONSTANT:
        return repr(spec.low)
    sizes = ", ".join(map(str, spec.shape))
    return f"torch.zeros({sizes}, dtype=torch.{spec.dtype})" if spec.dtype != "float32" else f"torch.randn({sizes})"
