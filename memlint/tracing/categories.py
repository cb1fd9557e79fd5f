"""The category of each Buffer: from the role of its tensor in the program, else from its lifetime and readers."""

import weakref
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any

import torch

from memlint.accelerator.device import entry_of, is_virtual, unwrapped
from memlint.accelerator.private import part_of_rank
from memlint.accelerator.sparse import parts_of
from memlint.memory.records import Buffer, Category, Node, Phase

Tensor = torch.Tensor


class Roles:
    """Buffers with a known role, collected at the points of a step where the role shows."""

    def __init__(self) -> None:
        self.categories: dict[int, Category] = {}
        self.names: dict[int, str] = {}
        self.trained: dict[int, set[int]] = {}
        """Buffers of parameters that each optimizer received and that require a gradient, by the optimizer's `id`."""
        self.with_gradient: set[int] = set()
        """Buffers of parameters that had a gradient at one of the checks."""
        self._parameters: dict[str, list[tuple[str, weakref.ref[Tensor]]]] = {}
        """Parameters of each model at the last check, as weak references: the program may drop them."""

    def note_setup(self, program: Any) -> None:
        """Note parameters, buffers and inputs after setup."""
        model = getattr(program, "model", None)
        if isinstance(model, torch.nn.Module):
            self.note_model(model)
        self.note_inputs(getattr(program, "inputs", None))
        self.note_inputs(getattr(program, "targets", None))

    def note_model(self, model: torch.nn.Module, prefix: str = "") -> None:
        """Note parameters and buffers of a model, whose names begin with `prefix`, which is unique to the model."""
        parameters = list(model.named_parameters(prefix=prefix))
        self._parameters[prefix] = [(name, weakref.ref(parameter)) for name, parameter in parameters]
        self._note(parameters, Category.PARAMETER)
        for name, parameter in parameters:
            self._note(_attached(parameter, name), Category.PARAMETER)
        self._note(model.named_buffers(prefix=prefix), Category.BUFFER)

    def note_caches(self, tensors: Iterable[Tensor]) -> None:
        """Note keys, values and states that a generation keeps; a model may keep them in buffers."""
        for tensor in tensors:
            for number in _buffers_of(tensor):
                if self.categories.get(number, Category.BUFFER) is Category.BUFFER:
                    self.categories[number] = Category.KV_CACHE

    def note_parameters(self, tensors: Iterable[Tensor]) -> None:
        """Note parameters that belong to no model."""
        self._note((("", tensor) for tensor in tensors), Category.PARAMETER)

    def note_inputs(self, inputs: Any) -> None:
        """Note the tensors that a model is called with, also in dictionaries and lists."""
        self._note(_named_tensors(inputs, ""), Category.INPUT)

    def note_gradients(self) -> None:
        """Note gradients, before each optimizer step (a parameter may have its own) and at the end of a step."""
        for name, parameter in self._alive():
            if parameter.grad is not None:
                self.with_gradient.update(_buffers_of(parameter))
                self._note(((name, parameter.grad),), Category.GRADIENT)

    def note_state(self, program: Any) -> None:
        """Note the optimizer's state and remaining gradients at the end of a step."""
        self.note_gradients()
        self.note_setup(program)
        self.note_optimizer(getattr(program, "optimizer", None))

    def note_optimizer(self, optimizer: Any) -> None:
        """Note the state of an optimizer, and parameters that only it has."""
        names = {id(parameter): name for name, parameter in self._alive()}
        groups = getattr(optimizer, "param_groups", ())
        self._note_trained(optimizer, [each for group in groups for each in group["params"]])
        for group in groups:
            self._note((("", parameter) for parameter in group["params"]), Category.PARAMETER)
        for parameter, state in getattr(optimizer, "state", {}).items():
            owner = names.get(id(parameter), "")
            self._note(((f"{key} of {owner}", t) for key, t in _named_tensors(state, "")), Category.OPTIMIZER_STATE)

    def _note_trained(self, optimizer: Any, parameters: Iterable[Tensor]) -> None:
        trained = self.trained.setdefault(id(optimizer), set())
        for parameter in parameters:
            if isinstance(parameter, Tensor) and parameter.requires_grad:
                trained.update(_buffers_of(parameter))

    def _alive(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the parameters of all models that are alive."""
        for parameters in self._parameters.values():
            yield from ((name, tensor) for name, parameter in parameters if (tensor := parameter()) is not None)

    def _note(self, tensors: Iterable[tuple[str, Any]], category: Category) -> None:
        for name, tensor in tensors:
            for number in _buffers_of(tensor):
                if number not in self.categories:
                    self.categories[number], self.names[number] = category, name


def _buffers_of(tensor: Any) -> Iterator[int]:
    """Yield the Buffers that a tensor lies in."""
    tensor = part_of_rank(tensor, tensor)  # this rank's part of a DTensor
    parts = parts_of(unwrapped(tensor)) if isinstance(tensor, Tensor) else ()
    yield from (entry_of(part).number for part in filter(is_virtual, parts))


def _named_tensors(value: Any, name: str) -> Iterable[tuple[str, Tensor]]:
    if isinstance(value, Tensor):
        yield name, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _named_tensors(item, f"{name}.{key}" if name else str(key))
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from _named_tensors(item, f"{name}[{index}]")


def _attached(owner: Any, name: str, depth: int = 2) -> Iterator[tuple[str, Tensor]]:
    """Yield tensors attached to a parameter, such as the scales of a quantized one, also inside its attributes."""
    for attribute, value in getattr(owner, "__dict__", {}).items():
        if isinstance(value, Tensor) and "grad" not in attribute:
            yield f"{name}.{attribute}", value
        elif depth and not isinstance(value, (Tensor, torch.nn.Module)):
            yield from _attached(value, f"{name}.{attribute}", depth - 1)


def categorise(
    buffers: Sequence[Buffer], nodes: Sequence[Node], roles: Roles, step_events: Sequence[int], doubts: Container[int]
) -> tuple[Buffer, ...]:
    """Set the category of each of `buffers`: by role, else saved for backward, exchanged, temporary, or other."""
    read_in_backward: set[int] = set()
    exchanged: set[int] = set()
    for node in nodes:
        if node.op.startswith("c10d.") or (
            node.op.startswith(_COPY_OUT) and not exchanged.isdisjoint(g.buffer for g in node.inputs)
        ):
            exchanged.update(g.buffer for g in (*node.inputs, *node.outputs))
        if node.phase is Phase.BACKWARD:
            read_in_backward.update(g.buffer for g in node.inputs)
    first_step = step_events[0] if step_events else 0
    result = []
    for b in buffers:
        category = roles.categories.get(b.id)
        if category is None and (b.op in _WORKSPACES or b.id in doubts):
            category = Category.WORKSPACE
        if category is None and b.phase is Phase.OPTIMIZER and b.died is None:
            category = Category.OPTIMIZER_STATE
        if category is None and b.phase is Phase.FORWARD and b.id in read_in_backward:
            category = Category.ACTIVATION
        if category is None and b.id in exchanged:
            category = Category.COMMUNICATION
        if category is None:
            is_of_setup = b.born < first_step or b.phase is Phase.OTHER  # without a step, everything is setup
            category = Category.OTHER if is_of_setup and b.died is None else Category.TEMPORARY
        result.append(b._replace(category=category))
    return tuple(result)


_WORKSPACES = {"cublas", "cublaslt", "cudnn", "transformer_engine"}
_COPY_OUT = ("fsdp.split_with_sizes_copy", "aten.split_with_sizes_copy")
"""Ops by which fully_shard copies parameters out of a gathered buffer."""
