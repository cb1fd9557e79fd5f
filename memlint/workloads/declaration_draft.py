"""Declarations to copy: of a Workload as analysed, and a template for a model that cannot be analysed.

The template has the model's own names, and best guesses.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from memlint.base.errors import MemlintError
from memlint.memory.records import Assumption
from memlint.source.values import Call, Configured, Name, Settings, Unseen
from memlint.targets.target import parse_target
from memlint.targets.workload import CONSTANT, InputSpec, Workload
from memlint.targets.workload_tables import render_declaration
from memlint.workloads.construction.construct import complete
from memlint.workloads.constructor_values import parameters, plain_value
from memlint.workloads.guess.arguments import MissingArgumentsError, arguments_for
from memlint.workloads.guess.forward_names import guess_input
from memlint.workloads.guess.layers_in_code import layers_in_constructor
from memlint.workloads.guess.search import NoInputsError
from memlint.workloads.loading import load_object
from memlint.workloads.model_sizes import ModelSizes

_GUESSED = "The arguments and shapes below are guesses: put your own in their place."


def declaration(workload: Workload, assumptions: Sequence[Assumption], root: Path) -> str:
    """Return a table with every setting explicit, or a function that creates arguments that are not plain values."""
    arguments = {name: _as_code(value) for name, value in workload.arguments.items()}
    if all(_is_plain(value) for value in workload.arguments.values()):
        return render_declaration(workload, assumptions, root)
    specs = [spec.with_sizes(workload.dimensions) for spec in workload.inputs or ()]
    return _as_function(workload, [each.text for each in assumptions], arguments, specs)


def _is_plain(value: object) -> bool:
    """Return True if a table can hold the value."""
    if isinstance(value, Mapping | list | tuple):
        return all(map(_is_plain, value.values() if isinstance(value, Mapping) else value))
    return isinstance(value, bool | int | float | str)


def _as_code(value: object) -> str:
    """Return code that creates the value in a file with the model's names."""
    match value:
        case Name():
            return value.text if value.text.startswith("torch.") else value.text.rpartition(".")[2]
        case Call():
            return f"{_as_code(value.function)}({_arguments_as_code(value.arguments)})"
        case Settings():
            return _settings_as_code(value.values)
        case Configured():
            return f"hydra.utils.instantiate({value.value!r})"
        case Unseen():
            return "..."
        case list() | tuple():
            inner = ", ".join(map(_as_code, value))
            return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' * (len(value) == 1)})"
        case dict():
            return f"{{{', '.join(f'{key!r}: {_as_code(each)}' for key, each in value.items())}}}"
    return repr(value)


def _arguments_as_code(arguments: Mapping[str, object]) -> str:
    texts = {name: _as_code(each) for name, each in arguments.items()}
    return ", ".join(text if name.isdigit() else f"{name}={text}" for name, text in texts.items())


def _settings_as_code(values: Mapping[str, object]) -> str:
    """Return settings as attributes, nested ones too."""
    texts = {
        str(name): _settings_as_code(each) if isinstance(each, Mapping) else _as_code(each)
        for name, each in values.items()
    }
    return f"SimpleNamespace(**{{{', '.join(f'{name!r}: {text}' for name, text in texts.items())}}})"


def draft(workload: Workload, root: Path, error: MemlintError) -> str:
    """Return a table with arguments and inputs, or, if one is not a plain value, a function; `error` as a comment.

    If possible the model is built and called with the guessed arguments: its layers then determine the inputs. Raises
    MemlintError if the target cannot be loaded.
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
            by_name = _inputs_by_name(value)
            filled = replace(filled, inputs=by_name or None)
            assumptions = (Assumption(_to_fill_in(by_name), None),) if by_name else ()
        comments = [Assumption(text, None) for text in (error.message, _GUESSED)]
        return render_declaration(filled, (*comments, *assumptions), root)
    texts = {name: "..." if value is None else repr(value) for name, value in guesses.items()}
    inputs = _inputs_by_name(value)
    lines = (error.message, _GUESSED, *((_to_fill_in(inputs),) if inputs else ()))
    return _as_function(workload, lines, texts, inputs)


def _missing(value: object, workload: Workload) -> tuple[str, ...]:
    """Return the arguments without a known value."""
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
    """Guess inputs from the names of `forward`'s parameters, and from the layers in the constructor's code."""
    forward = getattr(value, "forward", None)
    if not isinstance(value, type) or forward is None:
        return ()
    model = layers_in_constructor(value)
    required = [each for each in list(parameters(forward).values())[1:] if each.default is each.empty]
    names = frozenset(each.name for each in required)
    return tuple(guess_input(each, model, names, ModelSizes(model)) for each in required)


def _to_fill_in(inputs: Sequence[InputSpec]) -> str:
    """Name the sizes of the inputs that only the reader can know."""
    return "Fill in the sizes that your data have: " + "; ".join(map(str, inputs))


def _as_function(
    workload: Workload, comments: Iterable[str], texts: Mapping[str, str], inputs: Sequence[InputSpec]
) -> str:
    """Return a `memlint_workload` for the model's file, with `...` in place of objects; `texts` are its arguments."""
    arguments = ", ".join(text if name.isdigit() else f"{name}={text}" for name, text in texts.items())
    tensors = ", ".join(f'"{spec.name}": {_as_python(spec)}' for spec in inputs)
    return "\n".join(
        [
            *(f"# {' '.join(text.split())}" for text in comments),
            f"# This goes into {Path(workload.path).name}.",
            *(("from types import SimpleNamespace", "", "") if "SimpleNamespace(" in arguments else ()),
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
