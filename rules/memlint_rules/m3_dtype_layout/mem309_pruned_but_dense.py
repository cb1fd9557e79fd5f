from memlint.base.units import format_nbytes
from memlint.lint.rule import Case, Confidence, Context, Findings, Severity, TraceRule
from memlint.memory.records import FORWARDS, Buffer, Category, Frame, Phase, Trace
from memlint.memory.timeline import without
from memlint_rules.support.flow import most_alive, peak_change

_MODEL = """\
import memlint
import torch
from torch import nn
from torch.nn.utils import prune


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(2048, 2048) for _ in range(4)))

    def forward(self, x):
        return self.layers(x)


@memlint.workload(mode="{mode}")
def pruned():
    model = Model()
    for layer in model.layers:
        prune.l1_unstructured(layer, "weight", 0.9){remove}
    return model, {{"x": torch.randn(64, 2048)}}
"""
_REMOVE = '\n        prune.remove(layer, "weight")'


class PrunedButDense(TraceRule):
    """Active pruning triples the bytes of the weights with masks and products; it saves none.

    Looks for parameters `<name>_orig` beside a buffer `<name>_mask` of the same shape, which `torch.nn.utils.prune`
    makes.

    ## Why it costs memory

    While pruning is active, a layer keeps the original weight, a mask of the same shape and dtype, and their product,
    which every forward computes anew and the layer keeps until the next. `prune.remove` leaves one dense weight. Zeros
    in a dense tensor take as many bytes as other numbers: at best, pruning costs nothing.

    ## How the saving is computed

    Masks and products are removed, and the peak is computed again. In training this is hypothetical: weights after
    `prune.remove` do not stay pruned when training continues.

    ## Known limits

    Masks of parametrizations and of other libraries are not recognised, nor are weights that merely contain zeros.
    Saving bytes requires smaller layers, or a sparse layout such as that of `torch.sparse.to_sparse_semi_structured`,
    which needs half precision and two zeros in every four numbers.

    - https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.prune.remove.html
    - https://docs.pytorch.org/docs/stable/sparse.html#sparse-semi-structured-tensors
    """

    code, name, severity = "MEM309", "pruned-but-dense", Severity.WARNING
    bad = (
        Case(_MODEL.format(mode="inference", remove=""), line=13),
        Case(title="In training", source=_MODEL.format(mode="train", remove=""), line=13),
    )
    good = (
        Case(_MODEL.format(mode="inference", remove=_REMOVE)),
        Case(_MODEL.format(mode="train", remove=_REMOVE), title="In training"),
    )

    def check(self, context: Context) -> Findings:
        trace = context.trace
        masks = {b.name: b for b in trace.buffers if b.category is Category.BUFFER and b.name.endswith("_mask")}
        pruned = {
            parameter.id: masks[mask].id
            for parameter in trace.buffers
            if parameter.category is Category.PARAMETER
            and parameter.name.endswith("_orig")
            and (mask := f"{parameter.name.removesuffix('_orig')}_mask") in masks
            and masks[mask].shape == parameter.shape
        }
        if not pruned:
            return
        timeline = context.timeline
        products, frame = _products(trace, pruned)
        training = context.workload.mode == "train"
        removed = [*pruned.values(), *products]
        nbytes = most_alive(timeline, removed)
        weights = sum(trace.buffers[parameter].nbytes for parameter in pruned)
        subject = "1 pruned weight" if len(pruned) == 1 else f"{len(pruned)} pruned weights"
        yield self.finding(
            context,
            frame,
            f"Masks and products of {subject} of {format_nbytes(weights)} take {format_nbytes(nbytes)} more. Zeros "
            "take as many bytes as other numbers: pruning by masks saves none.",
            nbytes=nbytes,
            peak_change=peak_change(timeline, without(timeline, removed)),
            confidence=Confidence.MODELLED if training else Confidence.EXACT_LIFETIME,
            fix="Call `torch.nn.utils.prune.remove(module, name)` "
            + ("when pruning is over. " if training else "before the model is moved to the device. ")
            + "For fewer bytes make layers smaller, or use a sparse layout.",
        )


def _products(trace: Trace, pruned: dict[int, int]) -> tuple[list[int], Frame | None]:
    """Return the products of weights and masks, the gradients of these, and the line of the largest."""
    products: list[Buffer] = []
    masks = set(pruned.values())
    for node in trace.nodes:
        if node.op != "aten.mul.Tensor" or node.step < 0:
            continue
        read = {geometry.buffer for geometry in node.inputs}
        if node.phase in FORWARDS and any({weight, mask} <= read for weight, mask in pruned.items()):
            products += [trace.buffers[geometry.buffer] for geometry in node.outputs]
        elif node.phase is Phase.BACKWARD and not masks.isdisjoint(read):
            products += [trace.buffers[buffer] for buffer in read - masks if buffer >= 0]
    biggest = max(products, key=lambda product: product.nbytes, default=None)
    return [product.id for product in products], biggest.frame if biggest else None
