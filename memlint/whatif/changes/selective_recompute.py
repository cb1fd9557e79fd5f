"""Selection of the outputs inside checkpointed modules that are worth keeping, from the Trace of the unchanged program.

`torch.utils.checkpoint.create_selective_checkpoint_contexts` caches the outputs that a policy names, and runs every
other operator of a checkpoint again, up to the last tensor that backward needs. A policy can distinguish calls by the
operator and by the shape of its weight. So calls that look the same to it are one value of the minimum cut in
`memlint.memory.recompute`.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import networkx as nx

from memlint.base.grouping import grouped
from memlint.memory.flops import node_flops, step_flops
from memlint.memory.recompute import Value, trade_off
from memlint.memory.records import Buffer, Category, Node, Phase, Trace
from memlint.memory.repeated_modules import is_inside
from memlint.whatif.changes.selective_checkpoint import WEIGHT_ARGUMENTS, KeptOutput
from memlint.whatif.repeated_blocks import Blocks, selections

_NEGLIGIBLE = 0.002
"""Smallest difference between checkpoints, as a share of a step's FLOPs, that is worth a trace each."""
_SAVE_NOTHING = frozenset({"add", "sub", "_to_copy", "clone", "cat", "copy_"})
_SAVE_INPUTS = frozenset({"mm", "addmm", "bmm", "baddbmm", "convolution"})
"""Operators that save no output of their own for backward, only their inputs."""


class Checkpoints(NamedTuple):
    """Modules to checkpoint, the outputs to keep inside them, and the expected effect."""

    paths: tuple[str, ...]
    kept: tuple[KeptOutput, ...]
    nbytes: int
    """Bytes saved less for backward."""
    flops: int
    """FLOPs that are repeated."""


def cheaper_checkpoints(trace: Trace, blocks: Blocks) -> list[Checkpoints]:
    """Return checkpoints that repeat less than those of all `blocks`, from the fewest FLOPs to the most bytes.

    They cover the blocks, every second block, or a part of each. A choice that repeats more than another and saves no
    more is left out.
    """
    checkpoints = []
    for each in (blocks, *selections(trace, blocks)):
        roles = _roles(trace, each.paths)
        if each is not blocks:
            checkpoints.append(Checkpoints(each.paths, (), each.nbytes, sum(role.value.flops for role in roles)))
        for choice in trade_off([role.value for role in roles]):
            outputs = _kept_outputs(roles, choice.kept)
            if outputs:
                checkpoints.append(Checkpoints(each.paths, outputs, each.nbytes - choice.nbytes, choice.flops))
    negligible = _NEGLIGIBLE * step_flops(trace)
    best: list[Checkpoints] = []
    for candidate in sorted(checkpoints, key=lambda each: (each.flops, -each.nbytes)):
        if candidate.nbytes > (best[-1].nbytes if best else 0):
            if best and candidate.flops - best[-1].flops < negligible:
                best.pop()
            best.append(candidate)
    return best


class _Role(NamedTuple):
    """Operators in the checkpointed modules that a policy treats alike."""

    op: str
    weights: frozenset[tuple[int, ...]]
    modules: tuple[str, ...]
    value: Value


def _kept_outputs(roles: Sequence[_Role], kept: Iterable[int]) -> tuple[KeptOutput, ...]:
    """Return the outputs that a policy has to name.

    If it keeps all outputs of an operator, it need not compare weights.
    """
    outputs = []
    by_op = sorted((roles[position] for position in sorted(kept)), key=lambda role: role.op)
    for op, group in groupby(by_op, key=lambda role: role.op):
        members = list(group)
        is_every_call = len(members) == sum(role.op == op for role in roles)
        weights = frozenset[tuple[int, ...]]().union(*(role.weights for role in members if not is_every_call))
        modules = dict.fromkeys(path for role in members for path in role.modules)
        outputs.append(KeptOutput(op, tuple(sorted(weights)), tuple(modules)))
    return tuple(outputs)


def _roles(trace: Trace, paths: Sequence[str]) -> list[_Role]:
    """Return the operators in a forward of these modules, with the costs of keeping outputs and of running again."""
    forward = _last_forward(trace, paths)
    calls = {path: [node for node in forward if is_inside(node.module, path)] for path in paths}
    role_of = _role_numbers(trace, calls)
    members: defaultdict[int, list[tuple[str, Node]]] = defaultdict(list)
    drawn_before: defaultdict[int, set[int]] = defaultdict(set)
    for path, nodes in calls.items():
        drawn: set[int] = set()
        for node in nodes:
            number = role_of[node.index]
            members[number].append((path, node))
            if node.op in trace.seeded:
                # An operator that runs again must find the random generator in the same state as in forward.
                drawn_before[number] |= drawn
                drawn.add(number)
    repeated = {node.index for nodes in calls.values() for node in _until_last_saved(nodes)}
    written = {buffer.id for node in forward for buffer in _written(trace, node)}
    readers = grouped((geometry.buffer, node.module) for node in forward for geometry in node.inputs)

    def value_of(number: int) -> Value:
        nodes = [node for _, node in members[number]]
        activations = [
            (path, buffer)
            for path, node in members[number]
            for buffer in trace.buffers_of(node.outputs)
            if buffer.node == node.index
        ]
        nbytes = sum(
            buffer.nbytes
            for path, buffer in activations
            # Tensors that the next module saves exist anyway.
            if buffer.category is not Category.ACTIVATION or all(is_inside(each, path) for each in readers[buffer.id])
        )
        makers = {buffer.node for node in nodes for buffer in trace.buffers_of(node.inputs)}
        return Value(
            # Roles that cost nothing to repeat need not be named, and of roles at the same price one comes first.
            nbytes=nbytes + 1 + number,
            flops=sum(node_flops(node) for node in nodes if node.index in repeated),
            inputs=tuple({role_of[index] for index in makers if index in role_of}),
            is_needed=any(node.index in repeated for node in nodes),
            can_be_kept=nodes[0].op not in trace.without_overload
            and all(buffer.id not in written for _, buffer in activations)
            and not any(_written(trace, node) for node in nodes),
            can_be_recomputed=not any(_updates_statistics(trace, node) for node in nodes),
            predecessors=tuple(drawn_before[number]),
        )

    def role(number: int) -> _Role:
        weights = (_weight(trace, node) for _, node in members[number])
        modules = dict.fromkeys(node.module.removeprefix(path).removeprefix(".") for path, node in members[number])
        op = members[number][0][1].op
        return _Role(op, frozenset(each for each in weights if each), tuple(modules), value_of(number))

    return [role(number) for number in range(len(members))]


def _last_forward(trace: Trace, paths: Sequence[str]) -> list[Node]:
    """Return the last forward of these modules: a step has several if it accumulates gradients."""
    phases = groupby(
        (node for node in trace.nodes if node.phase in {Phase.FORWARD, Phase.BACKWARD}),
        key=lambda node: (node.step, node.phase),
    )
    forwards = [list(nodes) for (_, phase), nodes in phases if phase is Phase.FORWARD]
    called = (
        each for each in reversed(forwards) if any(is_inside(node.module, path) for node in each for path in paths)
    )
    return next(called, [])


def _role_numbers(trace: Trace, calls: dict[str, list[Node]]) -> dict[int, int]:
    """Assign a number from 0 for the role of each Node, by its index.

    An operator whose calls all have weights has a role for each position in the modules; positions with weights of one
    shape share a role. Any other operator has one role.
    """
    nodes = [(path, node) for path, nodes in calls.items() for node in nodes]
    without_weight = {node.op for _, node in nodes if _weight(trace, node) is None}
    alike: nx.Graph[Any] = nx.Graph()
    for path, node in nodes:
        if node.op in without_weight:
            alike.add_edge(node.index, node.op)
        else:
            alike.add_edge(node.index, (node.op, "weight", _weight(trace, node)))
            alike.add_edge(node.index, (node.op, "place", node.module.removeprefix(path)))
    roles = nx.connected_components(alike)
    return {each: number for number, role in enumerate(roles) for each in role if isinstance(each, int)}


def _until_last_saved(nodes: Sequence[Node]) -> Sequence[Node]:
    """Drop the Nodes after the last tensor that backward needs: there a checkpoint stops recomputing."""
    end = len(nodes)
    while end and nodes[end - 1].op.split(".")[1] in _SAVE_NOTHING:
        end -= 1
    if end and nodes[end - 1].op.split(".")[1] in _SAVE_INPUTS:
        end -= 1
    return nodes[:end]


def _written(trace: Trace, node: Node) -> list[Buffer]:
    """Return the Buffers that a Node writes in place."""
    return [buffer for buffer in trace.buffers_of(node.outputs) if buffer.node != node.index]


def _updates_statistics(trace: Trace, node: Node) -> bool:
    """Return True if running it twice would change state that the model keeps."""
    touched = _written(trace, node) + (trace.buffers_of(node.inputs) if "batch_norm" in node.op else [])
    return any(buffer.category is Category.BUFFER for buffer in touched)


def _weight(trace: Trace, node: Node) -> tuple[int, ...] | None:
    """Return the shape of the parameter, or of its copy, by which an operator multiplies."""
    position = WEIGHT_ARGUMENTS.get(node.op)
    if position is None or len(node.inputs) <= position or node.inputs[position].buffer < 0:
        return None
    buffer = trace.buffers[node.inputs[position].buffer]
    sources = [buffer]
    if buffer.category is not Category.PARAMETER and buffer.node >= 0:
        sources = trace.buffers_of(trace.nodes[buffer.node].inputs)
    is_parameter = {source.category for source in sources} == {Category.PARAMETER}
    return node.inputs[position].shape if is_parameter else None
