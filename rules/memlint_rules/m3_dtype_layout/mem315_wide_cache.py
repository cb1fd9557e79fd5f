from memlint.base.units import format_nbytes
from memlint.lint.rule import Context, Findings, Severity, TraceRule
from memlint.memory.records import Trace
from memlint.memory.timeline import resize
from memlint_rules.support.caches import LONG_CACHE, caches
from memlint_rules.support.flow import MIN_NBYTES, Flow, grouped, made, most_alive, peak_change

_HALF = ("bfloat16", "float16")
_CAST = "aten._to_copy.default"


class WideCache(TraceRule):
    """Keys and values are kept in float32 although the model computes in 16 bits.

    Looks in generations for caches in float32 that are cast to 16 bits where they are read.

    ## Why it costs memory

    The cache takes twice its bytes, and the cast of what is read is a further copy of half of it. `torch.zeros` without
    a dtype is in float32, whatever the model's weights are in.

    ## How the saving is computed

    The caches get half of their bytes and the casts none, and the peak is computed again.

    ## Known limits

    States of state-space models, which sum up over all tokens and are kept in float32 on purpose, are not cast where
    they are read, and not reported.

    - https://huggingface.co/docs/transformers/kv_cache
    """

    code, name, severity = "MEM315", "wide-cache", Severity.WARNING
    bad = (LONG_CACHE.but({'4096, 1024, device="cuda", dtype=torch.bfloat16)': '640, 1024, device="cuda")'}, line=21),)
    good = (bad[0].but({'device="cuda")': 'device="cuda", dtype=torch.bfloat16)'}),)

    def check(self, context: Context) -> Findings:
        timeline, casts = context.timeline, _casts(context.trace)
        for frame, group in grouped((each.frame, each) for each in caches(context.trace) if each.id in casts).items():
            sizes = {each.id: each.nbytes // 2 for each in group}
            nbytes = most_alive(timeline, sizes)
            if nbytes < MIN_NBYTES:
                continue
            copies = {copy for each in group for copy in casts[each.id]}
            yield self.finding(
                context,
                frame,
                f"This cache is in float32, {format_nbytes(nbytes)}, and is cast to 16 bits where it is read.",
                nbytes=nbytes,
                peak_change=peak_change(timeline, resize(timeline, sizes | dict.fromkeys(copies, 0))),
                fix="Allocate it in the dtype of the keys: `torch.zeros(..., dtype=keys.dtype)`.",
            )


def _casts(trace: Trace) -> dict[int, set[int]]:
    """Return the copies in 16 bits of each cache in float32."""
    flow, casts = Flow.of(trace), dict[int, set[int]]()
    wide = {each.id for each in caches(trace) if each.dtype == "float32"}
    for node in flow.forward(_CAST):
        if node.inputs and node.inputs[0].buffer in wide and node.outputs[0].dtype in _HALF:
            casts.setdefault(node.inputs[0].buffer, set()).update(made(node))
    return casts
