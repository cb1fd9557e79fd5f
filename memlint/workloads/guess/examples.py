"""Inputs from an example in the project, for any batch size, and from the loop that trains the model."""

from collections.abc import Mapping

from torch import nn

from memlint.source.fed_calls import FedCall, FedInput
from memlint.source.shown_inputs import ShownCall, ShownTensor
from memlint.targets.workload import BATCH, DTYPES, InputSpec
from memlint.workloads.constructor_values import parameters
from memlint.workloads.guess.repair import Specs


def as_shown(model: nn.Module, shown: ShownCall) -> Specs:
    """Return the inputs of `shown`; the first size of its first tensor is the batch size. Empty if it has no tensor."""
    names = list(parameters(model.forward))
    tensors = [each for each in shown.inputs.values() if isinstance(each, ShownTensor)]
    if not tensors or any(each.dtype not in DTYPES for each in tensors):
        return ()
    batch = next((each.shape[0] for each in tensors if each.shape), None)
    specs = []
    for key, value in shown.inputs.items():
        name = names[int(key)] if key.isdigit() and int(key) < len(names) else key
        if isinstance(value, ShownTensor):
            shape: tuple[int | str, ...] = value.shape
            if value.shape[:1] == (batch,):
                shape = BATCH, *value.shape[1:]
            dtype = "float32" if "float" in value.dtype else value.dtype  # the dtype of the step decides
            specs.append(InputSpec(name, shape, dtype, high=value.high))
        elif isinstance(value, bool | int | float | str):
            specs.append(InputSpec.constant(name, value))
    return tuple(specs)


def fed_inputs(model: nn.Module, fed: FedCall) -> Mapping[str, FedInput] | None:
    """Return what the training loop feeds by parameter of `forward`; None if the call must be another model's."""
    known = parameters(model.forward)
    names = list(known)
    feeding = {
        names[int(key)] if key.isdigit() and int(key) < len(names) else key: each for key, each in fed.inputs.items()
    }
    required = {name for name, each in known.items() if each.default is each.empty}
    if feeding.keys() <= known.keys() and required <= feeding.keys():
        return feeding
    return None
