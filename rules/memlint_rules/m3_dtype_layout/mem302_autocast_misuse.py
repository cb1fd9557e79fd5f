from collections import defaultdict

from memlint.base.units import format_nbytes
from memlint.lint.rule import Case, Context, Findings, Severity, TraceRule
from memlint.memory.records import FORWARDS, Buffer, Category, Phase, Trace
from memlint.memory.timeline import without
from memlint_rules.support.flow import HALF, most_alive, peak_change


class AutocastMisuse(TraceRule):
    """The same weight is cast several times under autocast, and all casts are kept.

    Looks for float32 parameters with a gradient that forward casts to half precision more than once, while earlier
    casts are still alive.

    ## Why it costs memory

    Autocast keeps the cast of each weight until the outermost autocast block ends, and reuses it. A separate block for
    each call, or `cache_enabled=False`, makes a new cast for each use, and every one is kept for backward.

    ## How the saving is computed

    All but the first of the simultaneously live casts are removed, with the float32 copies of gradients that are added
    to others: gradients of a single cast are added in half precision. The peak is computed again.

    ## Known limits

    Weights without a gradient are never cached, nor are parts of weights; neither is reported.

    - https://docs.pytorch.org/docs/stable/amp.html#torch.autocast
    """

    code, name, severity = "MEM302", "autocast-misuse", Severity.INFO
    bad = (
        Case.of_layers(
            {"layer": "nn.Linear(2048, 2048)"},
            """\
for _ in range(8):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        x = self.layer(x)
return x""",
            {"x": "torch.randn(16, 2048)"},
            line=13,
        ),
    )
    good = (
        Case.of_layers(
            {"layer": "nn.Linear(2048, 2048)"},
            """\
with torch.autocast("cuda", dtype=torch.bfloat16):
    for _ in range(8):
        x = self.layer(x)
return x""",
            {"x": "torch.randn(16, 2048)"},
        ),
        bad[0].but(title="One block around all", dtype="bf16-amp"),
    )

    def check(self, context: Context) -> Findings:
        casts = _casts(context.trace)
        repeated = [cast for same in casts.values() for cast in _repeated(same)]
        if not repeated:
            return
        timeline = context.timeline
        nbytes = most_alive(timeline, [cast.id for cast in repeated])
        biggest = max(repeated, key=lambda cast: cast.nbytes)
        removed = [cast.id for cast in repeated] + _cast_gradients(context.trace, {cast.shape for cast in repeated})
        names = {name for (name, _), same in casts.items() if _repeated(same)}
        which = f"`{min(names)}` is" if len(names) == 1 else f"{len(names)} weights, among them `{min(names)}`, are"
        yield self.finding(
            context,
            biggest.frame,
            f"{which} cast to {biggest.dtype} several times in one forward; all casts but the first take "
            f"{format_nbytes(nbytes)}.",
            nbytes=nbytes,
            peak_change=peak_change(timeline, without(timeline, removed)),
            fix="Put one `torch.autocast` block around forward and loss, with its cache enabled.",
        )


def _casts(trace: Trace) -> dict[tuple[str, int], list[Buffer]]:
    """Return the casts of each whole trained parameter in the forward of each step, in order."""
    trained = {b.name for b in trace.buffers if b.category is Category.GRADIENT}
    casts: defaultdict[tuple[str, int], list[Buffer]] = defaultdict(list)
    for node in trace.nodes:
        if node.op != "aten._to_copy.default" or node.phase not in FORWARDS or node.inputs[0].buffer < 0:
            continue
        parameter, made = trace.buffers[node.inputs[0].buffer], node.outputs[0]
        is_trained = parameter.category is Category.PARAMETER and parameter.name in trained
        if is_trained and made.dtype in HALF and made.shape == parameter.shape:
            casts[parameter.name, node.step].append(trace.buffers[made.buffer])
    return casts


def _repeated(casts: list[Buffer]) -> list[Buffer]:
    """Return casts made while an earlier, reusable one is alive."""
    kept, repeated = casts[0], []
    for cast in casts[1:]:
        if kept.died is None or cast.born < kept.died:
            repeated.append(cast)
        else:
            kept = cast
    return repeated


def _cast_gradients(trace: Trace, shapes: set[tuple[int, ...]]) -> list[int]:
    """Return gradients of casts of these shapes, cast back to float32 to be added to that of the parameter."""
    return [
        buffer.id
        for buffer in trace.buffers
        if buffer.op == "aten._to_copy.default"
        and buffer.phase is Phase.BACKWARD
        and buffer.category is Category.TEMPORARY
        and buffer.dtype == "float32"
        and buffer.shape in shapes
    ]
