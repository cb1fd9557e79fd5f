"""Construction of a model from a Workload's target, and of a Program that runs it."""

import copy
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import distributed as dist
from torch import nn

from memlint.base.errors import WorkloadError
from memlint.base.units import Dtype
from memlint.memory.devices import Device
from memlint.memory.records import Assumption
from memlint.source.values import Configured, Settings
from memlint.targets.declare import Declaration
from memlint.targets.target import SEPARATOR, Target, parse_target
from memlint.targets.workload import GENERATED, SEQUENCE, Workload
from memlint.workloads.construction.dimensions import implied_dimensions, parameters_taking_sizes, refuse_untaken
from memlint.workloads.construction.generating import inputs_of_generate, with_lengths
from memlint.workloads.construction.optimizers import NONE, optimizer_named
from memlint.workloads.construction.program import Construction, Program, sizes_assumed
from memlint.workloads.construction.recorded_arguments import load_arguments
from memlint.workloads.construction.training_step import (
    assumption,
    calls_methods,
    calls_training_step,
    of_methods,
    own_optimizer,
)
from memlint.workloads.guess.arguments import arguments_for
from memlint.workloads.guess.inferred import Inferred
from memlint.workloads.guess.inputs import in_dtype, infer_inputs
from memlint.workloads.guess.search import NoInputsError
from memlint.workloads.huggingface.adapters import with_adapter
from memlint.workloads.huggingface.configs import config_from_json, few_layers, is_config, is_model, with_arguments
from memlint.workloads.huggingface.models import model_from_config
from memlint.workloads.loading import load_object
from memlint.workloads.loss import NamedLoss, without_gradients
from memlint.workloads.older_versions.applying import with_amendments
from memlint.workloads.tensors import make_inputs, placed
from memlint.workloads.user_errors import reported

_OF_16_BITS = {"bfloat16": torch.bfloat16, "float16": torch.float16}
_RETURNS = "Return a model, (model, inputs), (model, inputs, loss) or a memlint.Declaration."


@contextmanager
def simulated_device(device: Device) -> Iterator[str]:
    """Simulate `device`, and give the name of the device to move models to, `cuda` or `cpu`."""
    # The import changes PyTorch for the whole process, which a step on a real device must not see.
    from memlint.cuda.session import virtual_device  # noqa: PLC0415
    from memlint.workloads.safetensors_files import save_without_memory  # noqa: PLC0415 -- as above

    save_without_memory()
    with virtual_device(device):
        yield "cuda" if device.is_cuda else "cpu"


def build(workload: Workload, root: Path | None = None) -> Construction:
    """Build the model of `workload` on the host; raises WorkloadError for exceptions of the user's code."""
    _join(workload)
    target = _target(workload)
    if target.is_config and target.path is not None:
        config = with_arguments(config_from_json(target.path), workload.arguments)
        built = _of_result(config, workload.name)
    else:
        built = build_object(load_object(target, root), workload)
    if workload.adapter:
        built = replace(built, model=with_adapter(built.model, workload.adapter))
    if workload.mode == "train" and built.step is None and calls_training_step(built.model):
        own = own_optimizer(built.model) if "optimizer" in workload.assumed and built.optimizer is None else None
        notes = (*built.assumptions, assumption(built.model))
        built = replace(built, optimizer=own or built.optimizer, assumptions=notes)
    elif _calls_methods(workload, built) and workload.fed is not None:
        built = replace(built, assumptions=(*built.assumptions, of_methods(workload.fed)))
    config = getattr(built.model, "config", None)
    if workload.mode == "train" and is_model(built.model) and getattr(config, "use_cache", False):
        # transformers' own Trainer does the same.
        built.model.config.use_cache = False  # type: ignore[union-attr]
        return replace(built, assumptions=(*built.assumptions, Assumption("use_cache is off while training", None)))
    return built


def _calls_methods(workload: Workload, built: Construction) -> bool:
    """Make a step call the methods that the training loop calls in place of `forward`, if it does; True if so."""
    is_own = workload.mode == "train" and built.step is None
    return is_own and workload.fed is not None and calls_methods(built.model, workload.fed)


def _join(workload: Workload) -> None:
    """Make the program one of the ranks of `workload` if there are several."""
    if workload.world_size > 1:
        from memlint.distributed.wrapping import join  # noqa: PLC0415 -- as below

        join(workload.world_size, workload.rank_number)


def build_object(value: object, workload: Workload) -> Construction:
    """Build from the object that a target names: a model class, a function, a model, a Hugging Face config."""
    _join(workload)
    if workload.world_size > 1 and isinstance(value, type) and not dist.is_initialized():
        dist.init_process_group()  # scripts do this before they make a model that asks for it
    if isinstance(value, nn.Module):
        # Each Program has a model of its own: the module's model stays as imported, and is not counted.
        _stands_for(value)
        return Construction(copy.deepcopy(value))
    if is_config(value):
        return _of_result(with_arguments(value, workload.arguments), workload.name)
    if not callable(value):
        return _of_result(value, workload.name)
    namespace = vars(sys.modules[value.__module__]) if getattr(value, "__module__", None) in sys.modules else {}
    failure: WorkloadError | None = None
    name = getattr(value, "__name__", workload.name)
    if workload.recorded is not None:
        with reported(f"{name} cannot be built as a script does"):
            positional, named = load_arguments(workload.recorded)
            return _of_result(with_amendments(lambda: value(*positional, **named)), name)
    for arguments in arguments_for(value, workload, namespace):
        try:
            with reported(f"{name} cannot be built"):
                result = with_amendments(lambda values=arguments.values: value(**values))  # type: ignore[misc]
        except WorkloadError as error:
            failure = failure or error
            continue
        built = _of_result(result, name)
        _stand_for_one_of(built.model, namespace)
        guesses = (sizes_assumed(arguments.guessed),) if arguments.guessed else ()
        notes = (*guesses, *(Assumption(text, None) for text in arguments.assumptions))
        return replace(built, assumptions=notes, guessed=arguments.guessed)
    raise failure or WorkloadError(f"{name} cannot be built: none of the configs in its file can be made")


def _stand_for_one_of(model: nn.Module, namespace: Mapping[str, Any]) -> None:
    """Let `model` replace one of its kind that its file created on the GPU at import, if there is any."""
    for value in list(namespace.values()):
        made = getattr(value, "module", value) if isinstance(value, nn.DataParallel) else value
        if type(made) is type(model) and isinstance(made, nn.Module) and made is not model and _stands_for(made):
            return


def _stands_for(made: nn.Module) -> bool:
    """Stop counting the GPU memory of a model, if it has any: another model replaces it."""
    # The import changes PyTorch for the whole process, which a step on a real device must not see.
    preexisting = sys.modules.get("memlint.accelerator.preexisting_tensors")
    tensors = [*made.parameters(), *made.buffers()]
    if preexisting is None or not preexisting.includes(tensors):
        return False
    preexisting.leave_out(tensors)
    return True


def complete(workload: Workload, root: Path | None = None) -> tuple[Workload, tuple[Assumption, ...]]:
    """Add inputs, inferred if nobody declared any, and all dimensions to `workload`; returns it with the assumptions.

    Runs the model on a virtual device, so do not call it inside one. If the target itself gives the inputs, `inputs`
    stays None. Raises WorkloadError if no inputs are found, UsageError for dimensions that nothing takes.
    """
    if workload.world_size > 1:
        from memlint.distributed.group import import_strategies  # noqa: PLC0415 -- it takes PyTorch a second

        import_strategies()
    workload, assumptions = with_lengths(workload)
    declared = workload.dimensions
    target = _target(workload)
    value = None if target.is_config else load_object(target, root)
    if workload.mode == "train" and (decorator := without_gradients(value)):
        found = Assumption(f"mode inference: forward runs under {decorator}", None, found=True)
        workload = replace(workload, mode="inference", found=(*workload.found, found))
    with simulated_device(workload.device) as place:
        workload = replace(workload, dimensions={**implied_dimensions(value, workload.arguments), **declared})
        taking = parameters_taking_sizes(value)
        if workload.inputs is None:
            # A class's own default of `seq` that nobody asked to change is not the length of its texts.
            free = SEQUENCE in workload.dimensions or SEQUENCE not in {*taking, *workload.arguments}
            sizes = workload.dimensions if free else None
            built, inferred = _tried(workload, _with_few_layers(workload, target, value), root, place, sizes)
            workload = _with_own_dtype(workload, built.model)
            workload = replace(workload, guessed={**workload.guessed, **built.guessed})
            if inferred is not None:
                inputs, dimensions = inferred.inputs, {**inferred.dimensions, **workload.dimensions}
                if workload.mode == "generate":
                    inputs = inputs_of_generate(inputs, built.model)
                    dimensions.pop(SEQUENCE, None)
                built_by = _with_unstated(workload.built_by, inferred)
                batch = 1 if inferred.takes_one else workload.batch
                workload = replace(workload, inputs=inputs, dimensions=dimensions, built_by=built_by, batch=batch)
                assumptions += inferred.assumptions
    named = frozenset().union(*(spec.dimensions for spec in workload.inputs or ()))
    own = GENERATED if workload.mode == "generate" else ()
    refuse_untaken(
        workload, declared, [name for name in workload.dimensions if name in taking or name in named or name in own]
    )
    return workload, assumptions


def _with_own_dtype(workload: Workload, model: object) -> Workload:
    """Take the dtype of 16 bits in which a model is built, if all its weights have it and nothing states another."""
    kind = _dtype_of_16_bits(model) if "dtype" in workload.assumed else None
    if kind is None:
        return workload
    dtype: Dtype = "bfloat16" if kind is torch.bfloat16 else "float16"
    found = Assumption(f"dtype {dtype}: the model is built in it", None, found=True)
    return replace(workload, dtype=dtype, assumed=workload.assumed - {"dtype"}, found=(*workload.found, found))


def _dtype_of_16_bits(model: Any) -> torch.dtype | None:
    """Return the dtype of all weights of a model if that has 16 bits."""
    weights = model.parameters() if isinstance(model, nn.Module) else ()
    kinds = {weight.dtype for weight in weights if weight.is_floating_point()}
    return kinds.pop() if kinds in ({torch.bfloat16}, {torch.float16}) else None


def _with_few_layers(workload: Workload, target: Target, value: object) -> Workload:
    """Return a Workload whose model takes the same inputs and is built sooner, if there is one."""
    if target.is_config and target.path is not None:
        value = config_from_json(target.path)
    if not is_config(value):
        return workload
    few = few_layers(with_arguments(value, workload.arguments))
    return replace(workload, arguments={**workload.arguments, **few}) if few else workload


def _tried(
    workload: Workload, shallow: Workload, root: Path | None, place: str, sizes: Mapping[str, int] | None
) -> tuple[Construction, Inferred | None]:
    """Build the model, and find inputs unless it gives them; the `shallow` one does if it takes what it should get."""
    infer = _inferred_for_prompt if workload.mode == "generate" else _inferred
    if shallow is not workload:
        with suppress(WorkloadError):
            built = build(shallow, root)
            inferred = infer(workload, built, place, sizes)
            if inferred.is_first_choice:
                return built, inferred
    built = build(workload, root)
    if built.inputs is not None:
        return built, None
    try:
        return built, infer(workload, built, place, sizes)
    except NoInputsError:
        if (kind := _dtype_of_16_bits(built.model)) is None:
            raise
        inferred = infer(workload, replace(built, model=built.model.float()), place, sizes)  # as its trials are
        built.model.to(kind)
        return built, inferred


def _with_unstated(built_by: str, inferred: Inferred) -> str:
    """Return the part of the headline that says who builds a model, with the size of its inputs that nothing states."""
    why = ", as in an example" if inferred.is_of_example else ": nothing states their size"
    return "; ".join(filter(None, (built_by, inferred.unstated and f"{inferred.unstated}{why}")))


def settings_of(workload: Workload) -> Iterator[Assumption]:
    """Yield the settings that the project's files state for the step, and memlint's defaults for the others."""
    yield from workload.found
    if workload.guessed:
        yield sizes_assumed(workload.guessed)
    of_mode = workload.assumed if workload.mode == "train" else workload.assumed - {"optimizer"}
    settings = [f"{name} {getattr(workload, name)}" for name in ("batch", "dtype", "optimizer") if name in of_mode]
    if settings:
        why = f"memlint's own, as nothing was found that sets {'them' if settings[1:] else 'it'} for this model"
        yield Assumption(f"{', '.join(settings)}: {why}", None)


def _stated(workload: Workload) -> dict[str, object]:
    """Return the sizes that the model is built with, and those of its training loop."""
    stated: dict[str, object] = dict(workload.sizes)
    for value in workload.arguments.values():
        if isinstance(value, Configured):
            stated |= value.value if isinstance(value.value, Mapping) else {}
        elif isinstance(value, Settings | Mapping):
            stated |= value.values if isinstance(value, Settings) else value
    return stated | {name: value for name, value in workload.arguments.items() if not name.isdigit()}


def _inferred(workload: Workload, built: Construction, place: str, dimensions: Mapping[str, int] | None) -> Inferred:
    with reported(f"{workload.name}: the model cannot be moved to the device"):
        # The tracer applies autocast as well; autocast changes no shape, so trials run without it.
        model = placed(built.model, place)
        model.train(workload.mode == "train")  # which may return nothing where a model has its own
    train = workload.mode == "train" and built.loss is None and built.step is None
    inferred = infer_inputs(
        model,
        train=train,
        device=place,
        dimensions=dimensions,
        stated=_stated(workload),
        shown=workload.shown,
        fed=workload.fed if workload.mode == "train" else None,
    )
    kind = _OF_16_BITS.get(workload.dtype)
    return inferred if kind is None else in_dtype(model, place, inferred, kind)


def _inferred_for_prompt(
    workload: Workload, built: Construction, place: str, _sizes: Mapping[str, int] | None
) -> Inferred:
    """Find inputs whose text is as long as the prompt; what is heard or seen may have no text."""
    sizes = workload.dimensions
    try:
        return _inferred(workload, built, place, {**sizes, SEQUENCE: sizes["prompt"]})
    except NoInputsError:
        return _inferred(workload, built, place, sizes)


def build_program(
    workload: Workload,
    root: Path | None = None,
    changes: Sequence[Callable[[Program], None]] = (),
    device: str | None = None,
) -> Program:
    """Make the Program of `workload`, completed first if need be; `device` is PyTorch's name, by default the GPU's."""
    workload, assumptions = complete(workload, root)
    return replace(completed_program(workload, root, device), changes=tuple(changes), assumptions=list(assumptions))


def completed_program(workload: Workload, root: Path | None = None, device: str | None = None) -> Program:
    """Make the Program of a completed Workload; on a real `device` nothing is simulated."""
    place = device or ("cuda" if workload.device.is_cuda else "cpu")
    # From the second batch of a step on, gradients are there during forward; further ones take nothing more.
    num_batches = min(workload.accumulation, 2)
    return Program(workload, lambda each: _construction(each, root), place, accumulation_steps=num_batches)


def _construction(workload: Workload, root: Path | None) -> Construction:
    built = build(workload, root)
    inputs, loss, optimizer = built.inputs, built.loss, built.optimizer
    if workload.inputs is not None:
        inputs = make_inputs(workload.inputs, workload.batch, workload.dimensions)
    if inputs is None:
        raise WorkloadError(f"{workload.name} has no inputs")
    if workload.loss is not None:
        loss = _callable(workload.loss, "loss", root) if SEPARATOR in workload.loss else NamedLoss(workload.loss)
    if optimizer is None and SEPARATOR in workload.optimizer:
        optimizer = _callable(workload.optimizer, "optimizer", root)
    elif optimizer is None and workload.optimizer != NONE:
        optimizer = optimizer_named(workload.optimizer)
    declares = built.optimizer is not None
    return replace(built, inputs=inputs, loss=loss, optimizer=optimizer, declares_optimizer=declares)


def _of_result(value: object, name: str) -> Construction:
    """Interpret the return value of a function."""
    if isinstance(value, nn.Module):
        return Construction(value)
    if is_config(value):
        made = model_from_config(value)
        return Construction(made.model, assumptions=tuple(Assumption(text, None) for text in made.notes))
    if isinstance(value, Declaration):
        parts: tuple[object, ...] = (value.model, value.inputs, value.loss, value.optimizer, value.step)
    elif isinstance(value, tuple) and len(value) > 1 and isinstance(value[1], nn.Module | torch.optim.Optimizer):
        parts = (value[0], *(None,) * 4)  # with its criterion, or other things that belong to it
    elif isinstance(value, tuple) and len(value) in {2, 3}:
        parts = (*value, *(None,) * (5 - len(value)))
    else:
        raise WorkloadError(f"{name} gives a {type(value).__name__}, not a model", _RETURNS)
    model, inputs, loss, optimizer, step = parts
    if not isinstance(model, nn.Module):
        raise WorkloadError(f"{name} gives a {type(model).__name__} where the model belongs", _RETURNS)
    for part, what in ((loss, "loss"), (optimizer, "optimizer"), (step, "step")):
        if part is not None and not callable(part):
            raise WorkloadError(f"{name} gives a {type(part).__name__} where the {what} belongs", _RETURNS)
    return Construction(model, _named(inputs), loss, optimizer, step=step)  # type: ignore[arg-type]


def _named(inputs: object) -> Mapping[str, Any] | None:
    """Name the inputs; positional ones get digits."""
    if inputs is None:
        return None
    if isinstance(inputs, Mapping):
        return {str(name): value for name, value in inputs.items()}
    values = inputs if isinstance(inputs, tuple | list) else (inputs,)
    return {str(position): value for position, value in enumerate(values)}


def _callable(text: str, what: str, root: Path | None) -> Callable[..., Any]:
    value = load_object(parse_target(text, root or Path.cwd()), root)
    if not callable(value):
        raise WorkloadError(f"{text} is no {what}: it is a {type(value).__name__}", "Name a function.")
    return value


def _target(workload: Workload) -> Target:
    if not workload.path:
        return parse_target(workload.target, Path.cwd())
    name = f"{SEPARATOR}{workload.qualname}" if workload.qualname else ""
    return parse_target(f"{workload.path}{name}", Path.cwd())
