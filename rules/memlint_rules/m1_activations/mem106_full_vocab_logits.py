from math import prod
from typing import NamedTuple

from memlint.base.units import format_nbytes
from memlint.lint.rule import Case, Context, Findings, Severity, TraceRule
from memlint.memory.records import Geometry, Node, Phase, Trace
from memlint.memory.timeline import resize
from memlint.whatif.changes import FusedCrossEntropy
from memlint_rules.support.flow import POINTWISE, PRODUCTS, Flow, grouped, most_alive, numel, peak_change

MIN_VOCABULARY = 8192
NUM_CHUNKS = 8
"""Number of chunks of positions that the saving is computed with."""


class FullVocabLogits(TraceRule):
    """The loss uses the logits of all positions over a large vocabulary at once.

    Follows the data from a matrix product with 8192 or more columns through elementwise kernels to a log-softmax and
    on to the negative log-likelihood, in training.

    ## Why it costs memory

    The logits have one element per position and word: 4096 positions and 32,000 words are 500 MiB in float32. The cast
    to float32, the log-softmax, its gradient and the gradient of the logits each allocate another tensor of that size,
    and three or four of them are alive together when backward begins. If they are computed for one chunk of positions
    at a time, and the chunk's logits are recomputed in backward, each tensor is only as large as its chunk.

    ## How the saving is computed

    In every step, each storage of that size in forward and backward is reduced to an eighth of its bytes, as for eight
    chunks of positions. Backward also gets one chunk's gradient of the weight, which exists beside the sum. The peak is
    computed again. If liger_kernel is installed, the step is traced again with its fused kernel, and the advice names
    that saving.

    ## Known limits

    More chunks save more and take more time. A model that also returns its logits must stop returning them. Fused
    kernels other than Liger's, such as `torch.nn.functional.linear_cross_entropy` of PyTorch 2.13, have memory needs of
    their own that are not modelled.

    - https://arxiv.org/abs/2411.09009
    - https://docs.pytorch.org/docs/stable/checkpoint.html
    """

    code, name, severity = "MEM106", "full-vocab-logits", Severity.WARNING
    model = """\
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(32_000, 64)
        self.head = nn.Linear(64, 32_000, bias=False)

    def forward(self, tokens):
        hidden, targets = self.embedding(tokens).flatten(0, 1), tokens.flatten()
        return F.cross_entropy(self.head(hidden), targets)

    def loss_of_chunk(self, hidden, targets):
        return F.cross_entropy(self.head(hidden), targets, reduction="sum")
"""
    example = Case.of_model(
        model,
        'Model(), {"tokens": torch.zeros(8, 512, dtype=torch.int64)}',
        imports="""\
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
""",
        line=15,
    )
    bad = (
        example,
        example.but(
            {"F.cross_entropy(self.head(hidden), targets)": "F.cross_entropy(self.head(hidden).float(), targets)"},
            title="With a cast of the logits",
            dtype="bf16-amp",
        ),
        example.but(
            {
                "import checkpoint\n": "import checkpoint\n\nfrom memlint.targets.declare import Declaration\n",
                "def memlint_workload():\n    return ": (
                    "def step(model, inputs, optimizer):\n"
                    "    for _ in range(2):\n"
                    "        model(**inputs).backward()\n"
                    "    optimizer.step()\n"
                    "    optimizer.zero_grad()\n\n\n"
                    "def memlint_workload():\n    return Declaration("
                ),
                "dtype=torch.int64)}": "dtype=torch.int64)}, step=step)",
            },
            title="With accumulation",
            line=17,
        ),
    )
    good = (
        example.but(
            {
                "return F.cross_entropy(self.head(hidden), targets)": (
                    "chunks = zip(hidden.chunk(8), targets.chunk(8))\n"
                    "        losses = [checkpoint(self.loss_of_chunk, h, t, use_reentrant=False) for h, t in chunks]\n"
                    "        return torch.stack(losses).sum() / targets.numel()"
                )
            }
        ),
        example.but(
            {
                "self.embedding = nn.Embedding(32_000, 64)": "self.embedding = nn.Embedding(1000, 64)",
                "self.head = nn.Linear(64, 32_000, bias=False)": "self.head = nn.Linear(64, 1000, bias=False)",
            },
            title="Few classes",
        ),
    )

    def check(self, context: Context) -> Findings:
        if context.workload.mode != "train":
            return
        flow, timeline = Flow.of(context.trace), context.timeline
        candidates = ((node.frame, _match(flow, node)) for node in flow.forward("aten._log_softmax.default"))
        lines = grouped((frame, match) for frame, match in candidates if match)
        for frame, matches in lines.items():
            if _is_chunked(flow, matches):
                continue
            sizes = _sizes(context.trace, matches)
            nbytes = most_alive(timeline, sizes)
            rows, words = numel(matches[0].logits) // matches[0].words, matches[0].words
            yield self.finding(
                context,
                frame,
                f"The logits of {rows:,} positions over {words:,} words are computed at once; with the loss's "
                f"copies of them they take {format_nbytes(nbytes)} at one time.",
                nbytes=nbytes,
                peak_change=peak_change(timeline, resize(timeline, sizes)),
                fix=f"Cut the positions into chunks ({NUM_CHUNKS} here), compute head and loss of each under "
                "`torch.utils.checkpoint.checkpoint(..., use_reentrant=False)` and add the losses, or use a fused loss "
                f"such as `torch.nn.functional.linear_cross_entropy`; {_liger_advice(context)}.",
            )


def _liger_advice(context: Context) -> str:
    """Return how to enable Liger's fused kernel, and its saving if it is installed."""
    advice = "Hugging Face's Trainer takes `use_liger_kernel=True`"
    after = context.retrace(FusedCrossEntropy())
    if after is None:
        return advice
    saved = context.estimate.requested.estimate - after.requested.estimate
    fused = f"liger_kernel is installed, whose `LigerFusedLinearCrossEntropyLoss` saves {format_nbytes(saved)} here"
    return f"{fused}; {advice}"


class _Match(NamedTuple):
    """The kernels from the product that makes the logits to the loss."""

    chain: tuple[Node, ...]
    product: Node

    @property
    def logits(self) -> Geometry:
        return self.product.outputs[0]

    @property
    def words(self) -> int:
        return self.logits.shape[-1]


def _match(flow: Flow, log_softmax: Node) -> _Match | None:
    words = log_softmax.outputs[0].shape[-1]
    if words < MIN_VOCABULARY or not _reaches_loss(flow, log_softmax):
        return None
    chain = [log_softmax]
    while chain[-1].op not in PRODUCTS:
        source = next((g for g in chain[-1].inputs if g.shape[-1:] == (words,) and g.buffer >= 0), None)
        writer = flow.writer(source.buffer, chain[-1].index) if source else None
        if writer is None or writer.outputs[0].shape[-1:] != (words,) or writer.op not in POINTWISE | PRODUCTS:
            return None
        chain.append(writer)
    copies = _casts_after(flow, log_softmax)
    return _Match((*chain, *copies), chain[-1])


def _reaches_loss(flow: Flow, log_softmax: Node) -> bool:
    last = (log_softmax, *_casts_after(flow, log_softmax))[-1]
    readers = flow.readers(last.outputs[0].buffer, last.index)
    return any(reader.op == "aten.nll_loss_forward.default" for reader in readers)


def _casts_after(flow: Flow, node: Node) -> tuple[Node, ...]:
    """Return the casts of the log-softmax for the loss, as under autocast."""
    readers = flow.readers(node.outputs[0].buffer, node.index)
    return tuple(n for n in readers if n.op == "aten._to_copy.default" and n.phase is Phase.FORWARD)


def _is_chunked(flow: Flow, matches: list[_Match]) -> bool:
    """Return True if the same line already computes the logits of one forward in several chunks."""
    forwards = [flow.forwards_before(match.product) for match in matches]
    return max(map(forwards.count, forwards)) > 1


def _sizes(trace: Trace, matches: list[_Match]) -> dict[int, int]:
    """Return the bytes of the storages with one element per position and word, if the positions came in chunks."""
    sizes: dict[int, int] = {}
    for match in matches:
        places = {(node.step, node.frame) for node in match.chain}
        shortest = min(numel(node.outputs[0]) for node in match.chain)
        made = {g.buffer for node in match.chain for g in node.outputs if g.buffer >= 0}
        made |= {
            buffer.id
            for buffer in trace.buffers
            if buffer.phase is Phase.BACKWARD
            and (buffer.step, buffer.frame) in places
            and shortest <= prod(buffer.shape) <= numel(match.logits)
            and match.words in buffer.shape
            and not buffer.name
        }
        sizes.update((buffer, trace.buffers[buffer].nbytes // NUM_CHUNKS) for buffer in made)
        weight = numel(match.product.inputs[-1])
        itemsize = trace.buffers[match.logits.buffer].nbytes // max(1, numel(match.logits))
        for buffer in made:
            if trace.buffers[buffer].op == "aten._log_softmax_backward_data.default":
                sizes[buffer] += weight * itemsize
    return sizes
