from collections.abc import Iterator
from typing import TypeAlias

from memlint.base.units import format_nbytes
from memlint.lint.rule import Case, Confidence, Context, Findings, Severity, TraceRule
from memlint.memory.records import Buffer, Category, Node
from memlint.memory.timeline import without
from memlint_rules.support.flow import MIN_NBYTES, Flow, grouped, peak_change
from memlint_rules.support.parameters import of_all_siblings

_FILLING = frozenset(
    {
        "aten._to_copy.default", "aten.clone.default", "aten.copy_.default", "aten.empty.memory_format",
        "aten.empty_like.default", "aten.fill_.Scalar", "aten.zero_.default",
    }
)  # fmt: skip
"""Kernels after which a buffer has one value everywhere, until something is loaded or written into it."""
_RANDOM = ("bernoulli", "exponential", "multinomial", "normal", "rand", "uniform")

_Origin: TypeAlias = "tuple[object, ...]"


class DuplicateBuffers(TraceRule):
    """Every layer has a copy of the same buffer.

    Looks for buffers of the same name in several modules that the same lines made from the same shapes without random
    numbers and that no step writes, such as causal masks, position tables and cosines.

    ## Why it costs memory

    Each is a storage of its own on the device. Even a single tensor that all layers register becomes one copy per layer
    when the model is moved: `Module.to` moves buffers one by one. Twelve masks of 4096 x 4096 booleans are 192 MiB.

    ## How the saving is computed

    All but one of them are removed, and the peak is computed again.

    ## Known limits

    Values are not compared: if the same line computes different numbers for every layer, such as windows of different
    width, buffers of one shape look equal. Buffers of less than 1 MiB in total are not reported, nor are those that
    were computed on the host from smaller tensors.

    - https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.register_buffer
    - https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html
    """

    code, name, severity = "MEM208", "duplicate-buffers", Severity.WARNING
    model = """\
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(64, 64)
        self.register_buffer("mask", torch.ones(2048, 2048).triu(1).bool())

    def forward(self, x, mask):
        scores = self.linear(x) @ x.mT
        return scores.masked_fill(self.mask, 0.0) @ x


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(12))

    def forward(self, x):
        for block in self.blocks:
            x = block(x, None)
        return x
"""
    bad = (Case.of_model(model, 'Model(), {"x": torch.randn(1, 2048, 64)}', line=9),)
    good = (
        bad[0].but(
            {
                '        self.register_buffer("mask", torch.ones(2048, 2048).triu(1).bool())\n': "",
                "return scores.masked_fill(self.mask, 0.0) @ x": "return scores.masked_fill(mask, 0.0) @ x",
                "self.blocks = nn.ModuleList(Block() for _ in range(12))": (
                    "self.blocks = nn.ModuleList(Block() for _ in range(12))\n"
                    '        self.register_buffer("mask", torch.ones(2048, 2048).triu(1).bool())'
                ),
                "x = block(x, None)": "x = block(x, self.mask)",
            }
        ),
        bad[0].but(
            {'"mask", torch.ones(2048, 2048).triu(1).bool()': '"mask", torch.rand(2048, 2048) > 0.5'},
            title="Random, and so all different",
        ),
        bad[0].but(
            {"torch.ones(2048, 2048).triu(1).bool()": "torch.zeros(2048, 2048, dtype=torch.bool)"},
            title="Room for a state of each layer",
        ),
    )

    def check(self, context: Context) -> Findings:
        trace = context.trace
        groups = grouped(
            ((of_all_siblings(buffer.name), buffer.shape, buffer.dtype), buffer)
            for buffer in trace.buffers
            if buffer.category is Category.BUFFER and buffer.nbytes
        )
        large = {key: buffers for key, buffers in groups.items() if _redundant_nbytes(buffers) >= MIN_NBYTES}
        flow, timeline = Flow.of(trace), context.timeline
        begin = next(iter(trace.step_nodes), len(trace.nodes))  # a script may only generate
        written = {g.buffer for node in trace.nodes if node.step >= 0 for g in node.outputs}
        for (name, *_), buffers in large.items():
            origins = ((_origin(flow, b.id, begin), b) for b in buffers if b.id not in written)
            for same in grouped((origin, buffer) for origin, buffer in origins if _is_determined(origin)).values():
                redundant = _redundant_nbytes(same)
                if redundant < MIN_NBYTES:
                    continue
                first = same[0]
                yield self.finding(
                    context,
                    flow.made_at(first),
                    f"The {len(same)} buffers `{name}`, {' x '.join(map(str, first.shape))} {first.dtype}, come from "
                    f"the same line; all but one of them take {format_nbytes(redundant)}.",
                    nbytes=redundant,
                    peak_change=peak_change(timeline, without(timeline, [b.id for b in same[1:]])),
                    confidence=Confidence.EXACT_LIFETIME,
                    fix="Register it once in the model and hand it to the layers; a causal mask is not needed at all "
                    "with `scaled_dot_product_attention(..., is_causal=True)`.",
                )


def _redundant_nbytes(buffers: list[Buffer]) -> int:
    return sum(buffer.nbytes for buffer in buffers[1:])


def _writers(flow: Flow, buffer: int, before: int) -> Iterator[Node]:
    """Yield the kernels that wrote the Buffer before that Node, the last first."""
    while (node := flow.writer(buffer, before)) is not None:
        yield node
        before = node.index


def _origin(flow: Flow, buffer: int, before: int) -> _Origin:
    """Return the kernels and lines that a Buffer came from: equal for Buffers made in the same way."""
    return tuple(
        (
            node.op,
            node.frame,
            tuple(g.shape for g in node.outputs),
            tuple(
                _origin(flow, g.buffer, node.index) if g.buffer >= 0 else g.shape
                for g in node.inputs
                if g.buffer != buffer
            ),
        )
        for node in _writers(flow, buffer, before)
    )


def _is_determined(origin: _Origin) -> bool:
    """Return True if more than one number was put in, and nothing random."""
    ops = set(_ops(origin))
    return not ops <= _FILLING and not any(random in op for op in ops for random in _RANDOM)


def _ops(origin: _Origin) -> Iterator[str]:
    for part in origin:
        if isinstance(part, str):
            if part.startswith("aten."):
                yield part
        elif isinstance(part, tuple):
            yield from _ops(part)
