from memlint.base.units import format_nbytes
from memlint.lint.rule import Context, Findings, Severity, TraceRule
from memlint.memory.timeline import resize
from memlint_rules.support.caches import LONG_CACHE, fixed_caches
from memlint_rules.support.flow import MIN_NBYTES, grouped, most_alive, peak_change

MIN_FACTOR = 1.5
"""Minimum ratio of a cache's length to the tokens that are written into it."""


class CacheLongerThanNeeded(TraceRule):
    """A cache of fixed size has room for many more tokens than the generation has.

    Looks in generations for caches that are allocated at once, and that the prefill and each further token fill to at
    most two thirds.

    ## Why it costs memory

    A static cache takes the memory of its longest text from the beginning, whatever is written into it: 1 GiB for
    8,192 tokens of a model with 8 billion parameters (32 layers, 8 heads of 128 for keys and values, 16 bits).

    ## How the saving is computed

    The caches get the length of the prompt and the generated tokens, and the peak is computed again.

    ## Known limits

    A server that allocates its cache once for the longest text that it serves does so on purpose. Masks and scores of
    the cache's length, which would shrink as well, are not counted.

    - https://huggingface.co/docs/transformers/kv_cache
    """

    code, name, severity = "MEM122", "cache-longer-than-needed", Severity.INFO
    bad = (LONG_CACHE,)
    good = (bad[0].but({"(8, 4096, 1024": "(8, 640, 1024"}),)

    def check(self, context: Context) -> Findings:
        timeline = context.timeline
        long = (each for each in fixed_caches(context.trace) if each.length >= MIN_FACTOR * each.used)
        for frame, group in grouped((each.buffer.frame, each) for each in long).items():
            sizes = {each.buffer.id: each.buffer.nbytes * each.used // each.length for each in group}
            nbytes = most_alive(timeline, sizes)
            if nbytes < MIN_NBYTES:
                continue
            longest = max(group)
            yield self.finding(
                context,
                frame,
                f"This cache has room for {longest.length:,} tokens, {format_nbytes(nbytes)}, and the generation has "
                f"{longest.used:,}.",
                nbytes=nbytes,
                peak_change=peak_change(timeline, resize(timeline, sizes)),
                fix="Allocate it for the prompt and the tokens that are generated, up to a multiple of 64 where "
                "it is compiled.",
            )
