"""Workloads as a script of the project has built them: its model's arguments, inputs, batch, dtype and optimizer."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import nn

from memlint.base.units import DTYPES, QUANTIZED
from memlint.memory.records import Assumption
from memlint.source.fed_calls import FedCall
from memlint.source.shown_inputs import ShownCall, ShownTensor
from memlint.source.training_loop import OPTIMIZERS
from memlint.targets.built import Asked, Built, BuiltClass, BuiltInput, BuiltModel, BuiltOptimizer, Setting
from memlint.targets.workload import BATCH, SEQUENCE, InputSpec, Workload
from memlint.workloads.guess.trial_forward import TRIAL_BATCH
from memlint.workloads.loss import ALIKE, OF_CLASSES
from memlint.workloads.tensors import make_inputs, placed, positional_and_named

_ITEM = re.compile(r"(\w+)\.(\d+)(\..+)?")
"""An entry of a list, or a part of one."""
_SEEN = frozenset(DTYPES).difference(QUANTIZED)
"""The dtypes of autocast and of parameters: those in 8 bits may be anybody's."""
_OF_EVALUATION = "; with inputs of its evaluation"
_LONGEST = 100
"""Maximum number of characters of a command in the headline."""
_MOST_OTHERS = 3


def classes_in(built: Built, path: Path, name: str = "") -> list[tuple[BuiltModel, BuiltClass]]:
    """Return the classes of the file that were built, each with the model that it is or is a part of.

    Whole models come first, of these only those that are trained, if any is. Parts count only without one: first
    the large ones, in the order in which the model has them. With a `name` only the class of that name counts.
    """
    of_file = [each for each in built.classes_of(str(path), name) if not each[0].is_copy]
    whole = [each for each in of_file if each[1] is each[0]]
    trained = [each for each in whole if each[0].has_optimizer]
    parts = [each for each in of_file if each[1] is not each[0]]
    found: dict[str, tuple[BuiltModel, BuiltClass]] = {}
    most = max((part.num_parameters for _model, part in parts), default=0)
    large_first = sorted(parts, key=lambda each: each[1].num_parameters <= most / 2)
    for model, kind in trained or whole or large_first:
        found.setdefault(kind.qualname, (model, kind))
    return list(found.values())


def with_settings_of(workload: Workload, asked: Asked) -> Workload:
    """Return `workload` with the settings of the step that the script takes, where nobody has typed others."""
    built, changed = asked.built, dict[str, Any]()
    assumptions = []
    called = next((each for each in built.models if each.is_called), None)
    model = called or max(built.models, key=lambda each: each.num_parameters, default=None)
    if not _trains(asked, model) and workload.mode == "train":
        changed["mode"] = "inference"
        if built.batch is None and BATCH in workload.assumed:
            workload = replace(workload, batch=1)  # what is shown is one picture or text, as in a demonstration
        assumptions.append(Assumption(f"mode inference: {asked.command} does not train it", None, found=True))
    assumptions += _circumstances(asked, called)
    if built.batch is not None and "batch" in workload.assumed:
        changed[BATCH] = int(built.batch.value)
        text = f"batch {built.batch.value}: {built.batch.source}"
        assumptions.append(Assumption(text, built.batch.frame, found=True))
    # A script that ends before its first step may not have come to its autocast.
    is_sure = called is not None or (built.dtype is not None and built.dtype.value != "float32")
    if built.dtype is not None and is_sure and "dtype" in workload.assumed and built.dtype.value in _SEEN:
        changed["dtype"] = built.dtype.value
        text = f"dtype {built.dtype.value}: {built.dtype.source}"
        assumptions.append(Assumption(text, built.dtype.frame, found=True))
    if built.optimizers and "optimizer" in workload.assumed and workload.mode == "train":
        leading = max(built.optimizers, key=lambda each: each.num_parameters)
        known = _optimizer(leading)
        changed["optimizer"] = known or workload.optimizer
        text = f"optimizer {known}: {leading.name}" if known else f"optimizer {workload.optimizer}: for {leading.name}"
        assumptions.append(Assumption(text, None, found=known is not None))
    elif built.stated_optimizer is not None and "optimizer" in workload.assumed and workload.mode == "train":
        changed["optimizer"] = str(built.stated_optimizer.value)
        text = f"optimizer {built.stated_optimizer.value}: {built.stated_optimizer.source}"
        assumptions.append(Assumption(text, built.stated_optimizer.frame, found=True))
    if built.accumulation is not None:
        changed["accumulation"] = int(built.accumulation.value)
        assumptions.append(
            Assumption(f"accumulation: {built.accumulation.source}", built.accumulation.frame, found=True)
        )
    losses = [each for each in built.criteria if each in (*OF_CLASSES, *ALIKE)]
    if len(losses) == 1 and workload.loss is None and workload.mode == "train":
        changed["loss"] = losses[0]
        assumptions.append(Assumption(f"loss {losses[0]}: it is the only one that is made", None, found=True))
    if asked.others:
        others = "; ".join(_short(each) for each in asked.others[:_MOST_OTHERS])
        assumptions.append(Assumption(f"it may be built by other scripts too: {others}", None, found=True))
    return replace(
        workload,
        **changed,
        sizes=dict(built.sizes),
        found=(*workload.found, *assumptions),
        assumed=workload.assumed - changed.keys(),
    )


def _trains(asked: Asked, model: BuiltModel | None) -> bool:
    """Return True if the script trains the model, or nothing says that it does not."""
    if model is None:
        return True
    if asked.is_example and model.is_called:
        return model.is_training
    has_optimizer = bool(asked.built.optimizers or (asked.trains and asked.built.stated_optimizer))
    return has_optimizer or (model.is_training and (asked.trains or asked.is_example))


def _circumstances(asked: Asked, called: BuiltModel | None) -> Iterator[Assumption]:
    """Yield what is not as it is where the script runs: the data, and the device."""
    if called is not None and asked.built.happened == "nothing":
        yield Assumption(f"the step is on a GPU: {asked.command} takes it on the CPU", None)
    if asked.built.made_up:
        text = f"sizes that come from the script's data are those of made-up data: {asked.built.made_up}"
        yield Assumption(text, None)


def _on_gpus_and_data(asked: Asked, model: BuiltModel) -> str:
    """Return the part of a headline that says on how many GPUs the script runs, and if it ended on made-up data."""
    on_gpus = f", on each of {asked.ranks} GPUs" if asked.ranks > 1 else ""
    is_early = asked.built.made_up and asked.built.ending.is_failure and not model.is_called
    return on_gpus + (", which ended on made-up data before it called it" if is_early else "")


def as_built(workload: Workload, asked: Asked, model: BuiltModel, kind: BuiltClass) -> Workload:
    """Return `workload` with the arguments of the class, and its inputs if it was called as a whole.

    Without arguments that can be repeated, those of `workload` stay.
    """
    is_part = kind is not model and not kind.is_base
    built_by = (
        f"part of {model.name}, built by {_short(asked.command)}"
        if is_part
        else f"as {_short(asked.command)} builds it"
    )
    built_by += "" if is_part else _on_gpus_and_data(asked, model)
    if asked.trainer:
        built_by += f"; {_short(asked.trainer)}, which trains it, ended before"
    num_gpus = 1 if is_part else model.num_gpus
    if num_gpus > 1:
        built_by += f"; the first of {num_gpus} GPUs, among which DataParallel divides the batch"
    trains = not is_part and workload.mode == "train"
    copies = 0 if not trains else sum(each.is_copy and each.qualname == model.qualname for each in asked.built.models)
    assumptions = []
    if kind.arguments is not None:
        place = f"{Path(kind.frame.path).name}:{kind.frame.line}" if kind.frame is not None else "the script"
        assumptions.append(Assumption(f"built as {place} does: {kind.shown}", kind.frame, found=True))
    if copies:
        assumptions.append(
            Assumption(f"{copies} more with averaged weights: the script has copied it", None, found=True)
        )
    if model.frozen and trains:
        what = f"frozen, as the script has it: {listed(model.frozen)}"
        if model.is_freed_later:
            built_by += "; it frees what it has frozen later, which is taken as free from the start"
            what = f"not {what}"
        assumptions.append(Assumption(what, None, found=True))
    workload = replace(workload, fed=None if is_part else model.fed)
    if not is_part and model.inputs and model.fed is not None and _is_before_loop(model, model.fed):
        workload = replace(workload, shown=_as_shown(model.inputs, model.fed))
    elif kind.inputs:
        evaluates = asked.built.happened == "evaluated" or not model.is_training  # perhaps before it trains
        is_evaluation = evaluates and workload.mode == "train" and not asked.is_example
        built_by += _OF_EVALUATION if is_evaluation else ""
        is_trial = bool(asked.trainer) or is_evaluation or model.is_freed_later  # whose batches change
        inputs = _in_whole_batches(kind.inputs, asked.built) if not is_trial else kind.inputs
        workload = with_inputs(workload, inputs, None if is_trial else asked.built.batch, keeps_batch=is_trial)
    return replace(
        workload,
        recorded=kind.arguments,
        built_by=built_by,
        copies=copies,
        num_gpus=num_gpus,
        frozen=model.frozen if trains and not model.is_freed_later else (),
        found=(*assumptions, *workload.found),
    )


def _in_whole_batches(inputs: Sequence[BuiltInput], built: Built) -> Sequence[BuiltInput]:
    """Return inputs with as many items as the loader gives, where data that was made up has fewer than a batch."""
    size = 0 if built.batch is None or not built.made_up else int(built.batch.value)
    first = next((each.shape[0] for each in inputs if each.shape), 0)
    if built.fewest_items is None or not 0 < first <= built.fewest_items < size:
        return inputs
    whole = ((size, *each.shape[1:]) if each.shape[:1] == (first,) else each.shape for each in inputs)
    return [replace(each, shape=shape) for each, shape in zip(inputs, whole, strict=True)]


def _is_before_loop(model: BuiltModel, fed: FedCall) -> bool:
    """Return True if the first call was not the training loop's, which feeds more: it initialized or counted."""
    num_inputs = len({each.name.partition(".")[0] for each in model.inputs})
    place = model.called_at
    is_elsewhere = place is not None and (place.path, place.line) != (fed.path, fed.line)
    return is_elsewhere and num_inputs < len(fed.inputs)


def _as_shown(inputs: Sequence[BuiltInput], fed: FedCall) -> ShownCall:
    """Return the inputs of a call that feeds less than the loop does as an example."""
    tensors = (ShownTensor(each.shape, each.dtype) if each.value is None else each.value for each in inputs)
    return ShownCall(dict(zip((each.name for each in inputs), tensors, strict=True)), fed.path, fed.line)


def with_plain_inputs(workload: Workload) -> Workload:
    """Return `workload` with the largest tensor of each object of the script's in its place: images without a mask."""
    largest: dict[str, InputSpec] = {}
    for spec in workload.inputs or ():
        name, _, field = spec.name.partition(".")
        name = name if field.isidentifier() else spec.name
        if name not in largest or len(spec.shape) > len(largest[name].shape):
            largest[name] = spec
    inputs = tuple(replace(spec, name=name) for name, spec in largest.items())
    own = (_as_given(spec, workload.dimensions) for spec in inputs)
    others = without_inputs(workload).found
    return replace(workload, inputs=inputs, found=(*others, *own))


def without_inputs(workload: Workload) -> Workload:
    """Return `workload` without the inputs that the script gives, and without a word on them."""
    given = {_as_given(spec, workload.dimensions) for spec in workload.inputs or ()}
    notes = tuple(each for each in workload.found if each not in given)
    return replace(workload, inputs=None, found=notes, built_by=workload.built_by.removesuffix(_OF_EVALUATION))


def _as_given(spec: InputSpec, dimensions: Mapping[str, int]) -> Assumption:
    return Assumption(f"input {spec.described(dimensions)}, as the script gives it", None, found=True)


def takes_inputs(model: nn.Module, workload: Workload, device: str) -> bool:
    """Return True if a model on `device` runs with the inputs of `workload`."""
    assert workload.inputs is not None, "there is something to try"
    inputs = make_inputs(workload.inputs, TRIAL_BATCH, workload.dimensions)
    positional, named = positional_and_named(inputs)

    def moved(value: Any) -> Any:
        if type(value) in (list, tuple):
            return type(value)(map(moved, value))
        if type(value) is dict:
            return {key: moved(each) for key, each in value.items()}
        return value.to(device) if isinstance(value, torch.Tensor) or hasattr(value, "to") else value

    try:
        with torch.no_grad():
            placed(model, device).train(workload.mode == "train")(
                *map(moved, positional), **{k: moved(v) for k, v in named.items()}
            )
    except Exception:  # whatever the model raises, other inputs are looked for
        return False
    return True


def with_inputs(
    workload: Workload, inputs: Sequence[BuiltInput], stated: Setting | None, *, keeps_batch: bool = False
) -> Workload:
    """Return `workload` with the inputs of a model's first call.

    The batch is that of the call unless another one is typed, or `keeps_batch` says that the call is only a trial.
    """
    said = None if stated is None else int(stated.value)
    grouped = list(_by_item(inputs, said or workload.batch))
    first = next((each.shape for each in grouped if each.shape and "[]" not in each.name), ())
    is_typed = BATCH not in workload.assumed and workload.batch != said
    batch = said or next(iter(first), workload.batch)
    place = next((number for number, size in enumerate(first[:2]) if size == batch), 0)
    if first and (first[place] % batch or not first[place]):  # the model sees other batches than the loader gives
        batch = first[place] or 1
    dimensions: dict[str, int] = {}
    specs = [
        InputSpec(each.name, _named_sizes(each, batch, place, dimensions), each.dtype, each.value)
        for each in (grouped if batch == said else _by_item(inputs, batch))
    ]
    sizes = {**dimensions, **workload.dimensions}
    notes = [_as_given(each, sizes) for each in specs]
    if batch != said and not is_typed and not keeps_batch:
        known = [each for each in workload.found if not each.text.startswith(f"{BATCH} ")]
        of_batch = Assumption(f"{BATCH} {batch}: as the script calls its model", None, found=True)
        settled = workload.assumed - {BATCH}
        workload = replace(workload, batch=batch, found=(*known, of_batch), assumed=settled)
    return replace(workload, inputs=tuple(specs), dimensions=sizes, found=(*workload.found, *notes))


def _by_item(inputs: Sequence[BuiltInput], batch: int) -> Iterator[BuiltInput]:
    """Yield the inputs; of lists with one entry per item of the batch the largest one, as `targets[].boxes`."""
    lists: dict[str, list[BuiltInput]] = {}
    for each in inputs:
        match = _ITEM.fullmatch(each.name)
        name = f"{match[1]}[]{match[3] or ''}" if match is not None else each.name
        lists.setdefault(name, []).append(each)
    for name, found in lists.items():
        are_batches = name.endswith("[]") and all(each.shape[:1] == (batch,) for each in found)  # such as two views
        if len(found) == batch and "[]" in name and len({len(each.shape) for each in found}) == 1 and not are_batches:
            yield replace(max(found, key=lambda each: prod(each.shape)), name=name)
        else:
            yield from found


def _named_sizes(each: BuiltInput, batch: int, place: int, dimensions: dict[str, int]) -> tuple[int | str, ...]:
    shape: list[int | str] = list(each.shape)
    if "[]" in each.name:
        return tuple(shape)
    here = place if place < len(shape) and shape[place] == batch else 0
    if shape and each.shape[here] and each.shape[here] % batch == 0:
        multiple = each.shape[here] // batch
        shape[here] = BATCH if multiple == 1 else f"{multiple}*{BATCH}"
    is_text = len(shape) == 2 and here == 0 and each.dtype == "int64" and shape[0] == BATCH
    if is_text and dimensions.setdefault(SEQUENCE, each.shape[1]) == each.shape[1]:
        shape[1] = SEQUENCE
    return tuple(shape)


def _optimizer(made: BuiltOptimizer) -> str | None:
    """Return memlint's name of an optimizer of PyTorch."""
    name = OPTIMIZERS.get(made.name)
    return "sgd-momentum" if name == "sgd" and made.defaults.get("momentum") else name


def _short(command: str) -> str:
    return command if len(command) <= _LONGEST else f"{command[: _LONGEST - 3]}..."


def listed(names: Sequence[str]) -> str:
    """Return the first of several names, and the number of the others."""
    more = f" and {len(names) - _MOST_OTHERS} more" if len(names) > _MOST_OTHERS else ""
    return ", ".join(names[:_MOST_OTHERS]) + more
