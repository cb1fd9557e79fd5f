"""Inputs created from their specs, with values that a model can process."""

import re
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, Self

import torch
from torch import nn

from memlint.accelerator.private import register_pytree_node
from memlint.base.errors import WorkloadError
from memlint.targets.workload import CONSTANT, InputSpec

_STEP = re.compile(r"[^.\[\]]+|\[\]")


def make_inputs(specs: Sequence[InputSpec], batch: int, dimensions: Mapping[str, int]) -> dict[str, Any]:
    """Create host tensors for `specs`, nested as their names say; see `InputSpec`.

    The seed is the same each time, and the program's own random state stays unchanged.
    """
    inputs: dict[str, Any] = {}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for spec in specs:
            _put(inputs, _STEP.findall(spec.name), spec, batch, dimensions)
    return {name: _listed(value) for name, value in inputs.items()}


class Fields(dict[str, Any]):
    """A batch with named fields, which are also attributes, as in a dictionary, TensorDict or PyG's Data."""

    def __getattr__(self, name: str) -> Any:
        """Return the field of that name."""
        if name in self:
            return self[name]
        raise AttributeError(name)

    def to(self, *place: Any, **options: Any) -> Self:
        """Move every field."""
        return type(self)({name: value.to(*place, **options) for name, value in self.items()})


register_pytree_node(
    Fields, lambda each: ([*each.values()], [*each]), lambda values, names: Fields(zip(names, values, strict=True))
)


def _listed(value: Any) -> Any:
    """Convert mappings whose keys count from 0 to lists."""
    if isinstance(value, list):
        return [_listed(each) for each in value]
    if isinstance(value, dict):
        value = Fields({key: _listed(each) for key, each in value.items()})
        if value and list(value) == [str(position) for position in range(len(value))]:
            return [*value.values()]
    return value


def positional_and_named(inputs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments of a call: inputs with digits as names are positional."""
    positional = [inputs[name] for name in sorted(filter(str.isdigit, inputs), key=int)]
    return positional, {name: value for name, value in inputs.items() if not name.isdigit()}


def make_tensor(spec: InputSpec, batch: int, dimensions: Mapping[str, int]) -> Any:
    """Create one value of `spec`: a tensor, or the constant."""
    if spec.dtype == CONSTANT:
        return spec.low
    shape, dtype = spec.sizes(batch, dimensions), getattr(torch, spec.dtype)
    if spec.counted:
        first = int(spec.low or 0)
        return (
            torch.arange(first, first + shape[-1], dtype=dtype)
            .expand(shape)
            .clone(memory_format=torch.contiguous_format)
        )
    if dtype.is_floating_point or dtype.is_complex:
        if spec.low is None and spec.high is None:
            return torch.randn(shape, dtype=dtype)
        low, high = float(spec.low or 0), float(1 if spec.high is None else spec.high)
        return torch.rand(shape).mul_(high - low).add_(low).to(dtype)
    low = int(spec.low or 0)
    high = max(low + 1, int(2 if spec.high is None else spec.high))
    # A constant tensor has known values on the virtual device too: a mask of ones selects everything.
    values = torch.full(shape, low) if high == low + 1 else torch.randint(low, high, shape)
    if values.numel() > 1:  # the highest is among them: a table that has no room for it shows at the first trial
        values.view(-1)[-1] = high - 1
    if spec.runs and shape[0]:
        begin = [value for value, count in spec.runs for _ in range(count)]
        if len(begin) > values[0].numel():
            raise WorkloadError(
                f"{spec.described(dimensions)} has no room for the {len(begin)} values that each entry begins with",
                "Make its other dimensions larger.",
            )
        values.view(shape[0], -1)[:, : len(begin)] = torch.tensor(begin)
    return values.to(dtype)


def _put(place: dict[str, Any], steps: list[str], spec: InputSpec, batch: int, dimensions: Mapping[str, int]) -> None:
    """Put the value of `spec` at the path `steps`: `["labels", "[]", "boxes"]`."""
    name, rest = steps[0], steps[1:]
    if not rest:
        place[name] = make_tensor(spec, batch, dimensions)
    elif rest == ["[]"]:
        place[name] = [make_tensor(spec, batch, dimensions) for _ in range(batch)]
    elif rest[0] == "[]":
        for item in place.setdefault(name, [{} for _ in range(batch)]):
            _put(item, rest[1:], spec, batch, dimensions)
    else:
        _put(place.setdefault(name, {}), rest, spec, batch, dimensions)


def placed(model: nn.Module, device: str) -> nn.Module:
    """Return the model on a device, which is then also what its modules keep as the device where they make tensors.

    A constructor's default for that is often the CPU, or none; it was built there. What was built without memory, on
    PyTorch's device `meta`, gets some.
    """
    is_empty = any(each.is_meta for each in chain(model.parameters(), model.buffers()))
    model = model.to_empty(device=device) if is_empty else model.to(device)
    for module in model.modules():
        for name, value in list(vars(module).items()):
            is_host = isinstance(value, str | torch.device) and str(value) == "cpu"
            if name.endswith("device") and (is_host or (value is None and name == "device")):
                setattr(module, name, torch.device(device) if isinstance(value, torch.device) else device)
    return model
