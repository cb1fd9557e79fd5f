"""Detection of functions that PyTorch has one kernel for, where a program writes them out, in a Trace."""

from collections.abc import Sequence
from typing import NamedTuple

from memlint.memory.records import FORWARDS, Category, Geometry, Node
from memlint_rules.support.flow import Flow, made, numel

MUL, ADD, SUB, DIV = (f"aten.{op}.Tensor" for op in ("mul", "add", "sub", "div"))
CAST, POW, MEAN = "aten._to_copy.default", "aten.pow.Tensor_Scalar", "aten.mean.dim"
SIGMOID, TANH, ERF, SOFTPLUS, SOFTMAX, LOG, SQRT, RSQRT = (
    f"aten.{op}.default" for op in ("sigmoid", "tanh", "erf", "softplus", "_softmax", "log", "sqrt", "rsqrt")
)
ROOTS = frozenset({SIGMOID, TANH, ERF, SOFTMAX, SQRT, RSQRT})
"""Characteristic kernels, one for each of these functions."""

RMS_NORM = "torch.nn.functional.rms_norm"
_ELEMENTWISE = frozenset({MUL, ADD, SUB, DIV, CAST, POW, SOFTPLUS})
_MAX_KERNELS = 10
"""Maximum number of kernels between the input of an activation and its root; GELU with casts has seven."""


class Composite(NamedTuple):
    """The kernels of one function that is written out."""

    function: str
    """The PyTorch function to call instead."""
    entry: Geometry
    """The input of that function."""
    kept: int | None
    """A Buffer that stands for the entry, which the function would save; None if entry or exit are saved already."""
    nodes: tuple[Node, ...]
    exit: Node
    """The last of `nodes`."""


def composite_around(flow: Flow, root: Node) -> Composite | None:
    """Find the function that `root` is the characteristic kernel of.

    None if the kernels around it are not such a function, or something else reads an intermediate result.
    """
    if root.op in (SIGMOID, TANH, ERF):
        composite = _activation(flow, root)
    elif root.op == SOFTMAX:
        composite = _log_softmax(flow, root)
    else:
        composite = _norm(flow, root)
    return composite if composite is not None and _is_closed(flow, composite) else None


def _activation(flow: Flow, root: Node) -> Composite | None:
    """Match `x` times the root, or half of `x` times one plus the root."""
    gate, plus_one = root, False
    product = flow.only_reader(root)
    if product is not None and product.op == ADD and _one_operand(product):
        gate, plus_one = product, True
        product = flow.only_reader(product)
    if product is None or product.op != MUL:
        return None
    other = next((g for g in product.inputs if g.buffer not in made(gate) and numel(g) == numel(root.outputs[0])), None)
    if other is None:
        return None
    after = [node for node in (gate, product) if node is not root]
    if (cone := _cone(flow, root, other)) is not None:
        half = flow.only_reader(product)
        if plus_one and half is not None and half.op == MUL and _one_operand(half):
            after.append(half)
        entry, before = other, cone
    else:
        scaling = flow.writer(other.buffer, product.index)
        if scaling is None or scaling.op != MUL or not _one_operand(scaling):
            return None
        entry = scaling.inputs[0]
        cone = _cone(flow, root, entry)
        if cone is None:
            return None
        before = [*cone, scaling]
    function = _name_of_activation(root, [node.op for node in cone if node.op != CAST], plus_one)
    kept = _cast_that_is_kept(flow, entry, before)
    return Composite(function, entry, kept, (*before, root, *after), after[-1]) if function else None


def _cast_that_is_kept(flow: Flow, entry: Geometry, nodes: Sequence[Node]) -> int | None:
    """Return the cast of an entry that backward reads instead, as under autocast; the function would save the entry."""
    if flow.trace.buffers[entry.buffer].category is Category.ACTIVATION:
        return None
    casts = (node for node in nodes if node.op == CAST and node.inputs[0].buffer == entry.buffer)
    return next((cast.outputs[0].buffer for cast in casts), None)


def _name_of_activation(root: Node, before: list[str], plus_one: bool) -> str:
    if plus_one and root.op == ERF and len(before) == 1:
        return "torch.nn.functional.gelu(x)"
    if plus_one and root.op == TANH and ADD in before and len(before) >= 4:
        return 'torch.nn.functional.gelu(x, approximate="tanh")'
    if not plus_one and root.op == TANH and before == [SOFTPLUS]:
        return "torch.nn.functional.mish(x)"
    if not plus_one and root.op == SIGMOID and not before:
        return "torch.nn.functional.silu(x)"
    return ""


def _log_softmax(flow: Flow, softmax: Node) -> Composite | None:
    log = flow.only_reader(softmax)
    if log is None or log.op != LOG or flow.trace.buffers[log.outputs[0].buffer].category is not Category.ACTIVATION:
        return None
    return Composite("torch.nn.functional.log_softmax(x, dim)", softmax.inputs[0], None, (softmax, log), log)


def _norm(flow: Flow, root: Node) -> Composite | None:
    """Match `x`, with or without its mean subtracted, over the root of its mean square, over the last dimension."""
    added = _writer(flow, root)
    mean = _writer(flow, added) if added is not None and added.op == ADD else None
    square = _writer(flow, mean) if mean is not None and mean.op == MEAN else None
    if added is None or mean is None or square is None or not _is_square(square) or not _is_over_last(mean):
        return None
    squared = square.inputs[0]
    product = flow.only_reader(root)
    if product is None or product.op not in (MUL, DIV):
        return None
    normalised = next((g for g in product.inputs if numel(g) == numel(squared)), None)
    if normalised is None:
        return None
    nodes = [square, mean, added, root, product]
    centring = [flow.writer(g.buffer, n.index) for g, n in ((squared, square), (normalised, product))]
    centred = [node for node in centring if node is not None and _takes_mean_off(flow, node)]
    if len(centred) == 2:
        entry = centred[0].inputs[0]
        mean_of_entry = flow.writer(centred[0].inputs[1].buffer, centred[0].index)
        assert mean_of_entry is not None  # _takes_mean_off found it
        nodes = [mean_of_entry, *dict.fromkeys(centred), *nodes]
        nodes += _scaled_and_shifted(flow, product)
        return Composite(
            "torch.nn.functional.layer_norm", entry, centred[-1].outputs[0].buffer, tuple(nodes), nodes[-1]
        )
    if normalised.buffer != squared.buffer:
        return None
    nodes += _scaled_and_shifted(flow, product, (MUL,))
    cast = flow.writer(squared.buffer, square.index)
    if cast is not None and cast.op == CAST and cast.inputs[0].dtype == nodes[-1].outputs[0].dtype:
        return Composite(RMS_NORM, cast.inputs[0], squared.buffer, (cast, *nodes), nodes[-1])
    return Composite(RMS_NORM, squared, None, tuple(nodes), nodes[-1])


def _scaled_and_shifted(flow: Flow, node: Node, ops: tuple[str, ...] = (MUL, ADD)) -> list[Node]:
    """Return the kernels after a normalisation: a product with a parameter and a sum with another, through casts."""
    affine: list[Node] = []
    passed: list[Node] = []
    for op in ops:
        reader = flow.only_reader((passed or affine or [node])[-1])
        while reader is not None and reader.op == CAST:
            passed.append(reader)
            reader = flow.only_reader(reader)
        if reader is None or reader.op != op or not any(map(flow.trace.is_parameter, reader.inputs)):
            break
        affine += [*passed, reader]
        passed = []
    return affine


def _takes_mean_off(flow: Flow, node: Node) -> bool:
    if node.op != SUB or len(node.inputs) != 2:
        return False
    mean = flow.writer(node.inputs[1].buffer, node.index)
    return (
        mean is not None
        and mean.op == MEAN
        and _is_over_last(mean)
        and mean.inputs[0].buffer == node.inputs[0].buffer
        and numel(node.inputs[0]) == numel(node.outputs[0])
    )


def _is_over_last(mean: Node) -> bool:
    source, mean_of = mean.inputs[0].shape, mean.outputs[0].shape
    return len(source) > 1 and mean_of in (source[:-1], (*source[:-1], 1)) and source[-1] > 1


def _is_square(node: Node) -> bool:
    return node.op == POW or (node.op == MUL and len({g.buffer for g in node.inputs}) == 1 and not _one_operand(node))


def _cone(flow: Flow, root: Node, entry: Geometry) -> list[Node] | None:
    """Return the elementwise kernels from `entry` to `root`; None if anything else goes into the root."""
    kernels: dict[int, Node] = {}
    waiting = [root]
    while waiting:
        node = waiting.pop()
        for geometry in node.inputs:
            if geometry.buffer == entry.buffer:
                continue
            writer = flow.writer(geometry.buffer, node.index)
            if writer is None or writer.op not in _ELEMENTWISE or numel(writer.outputs[0]) != numel(entry):
                return None
            if writer.index not in kernels:
                kernels[writer.index] = writer
                waiting.append(writer)
        if len(kernels) > _MAX_KERNELS:
            return None
    return [kernels[index] for index in sorted(kernels)]


def _is_closed(flow: Flow, composite: Composite) -> bool:
    """Return True if no forward kernel outside reads an intermediate result."""
    own = {node.index for node in composite.nodes}
    return all(
        reader.index in own or reader.phase not in FORWARDS
        for node in composite.nodes
        if node is not composite.exit
        for buffer in made(node)
        for reader in flow.readers(buffer, node.index)
    )


def _writer(flow: Flow, node: Node) -> Node | None:
    """Return the Node that wrote the first operand of `node`."""
    return flow.writer(node.inputs[0].buffer, node.index) if node.inputs and node.inputs[0].buffer >= 0 else None


def _one_operand(node: Node) -> bool:
    """Return True if the other operand is a number."""
    return len([g for g in node.inputs if g.buffer >= 0]) == 1
