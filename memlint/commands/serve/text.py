"""The answer of `memlint serve` as text, Markdown and JSON."""

from collections.abc import Iterator

from memlint.base.units import format_count, format_nbytes
from memlint.commands.serve.serve import Serving
from memlint.commands.sweep.tables_text import section
from memlint.report.escaping import for_log
from memlint.report.model import Interval
from memlint.report.text_style import TextStyle
from memlint.serving.served import Ratio, Served

_LOGGED = {
    "vllm": {
        "weights": "Model loading took",
        "activations": "peak activation memory",
        "cache": "Available KV cache memory",
        "tokens": "GPU KV cache size",
        "concurrency": "Maximum concurrency",
    },
    "sglang": {
        "weights": "Load weight end: mem usage",
        "cache": "KV Cache is allocated: K size + V size",
        "tokens": "#tokens, max_total_num_tokens",
    },
}
"""The names of these figures in the logs of engines."""
_COLORS = {"starts": "green", "may start": "yellow", "does not start": "red"}


def render(serving: Serving, form: str, paint: TextStyle) -> str:
    """`serving` as `text`, `markdown` or `json`."""
    if form == "json":
        return serving.model_dump_json(indent=2) + "\n"
    serving = for_log(serving)
    markdown = form == "markdown"
    lines: list[str] = []
    if serving.users is not None:
        lines += _choices(serving, paint, markdown=markdown)
    elif len(serving.served) == 1:
        lines += _one(serving.served[0], paint, markdown=markdown)
    else:
        lines += _table(serving, paint, markdown=markdown)
    return "\n".join(lines) + "\n"


def _one(served: Served, paint: TextStyle, *, markdown: bool) -> Iterator[str]:
    """Lines of one plan, in full."""
    stage, names = served.stage, _LOGGED[served.options.engine]
    taken = [("cuda_graphs", "CUDA graphs, captured later")] if not served.subtracts_graphs else []
    rows = [
        ("requested", "given to the engine", format_nbytes(served.requested)),
        ("weights", "weights", _bytes(stage.weights)),
        ("activations", "activations of the profile run", _bytes(stage.activations)),
        ("buffers", "counters of the sampler", _bytes(stage.buffers)),
        ("non_torch", "libraries, not PyTorch's", _bytes(stage.non_torch)),
        *([("cuda_graphs", "CUDA graphs", _bytes(stage.cuda_graphs))] if served.subtracts_graphs else []),
        ("cache", "left for the cache", _bytes(stage.cache)),
        ("blocks", f"blocks of {format_nbytes(served.nbytes_of_block)}", _number(served.num_blocks)),
        ("tokens", "tokens", _number(served.num_tokens)),
        ("concurrency", f"requests of {served.options.max_model_len:,} tokens at once", _ratio(served.concurrency)),
        *((name, text, _bytes(stage.cuda_graphs)) for name, text in taken),
    ]
    shown = [row for row in rows if row[0] != "buffers" or stage.buffers.high]
    table = [("", "on each GPU", "in its log"), *((text, value, names.get(name, "")) for name, text, value in shown)]
    start = paint(served.start, _COLORS[served.start], bold=True)
    sentences = [f"It {start}{f': {served.reason}' if served.reason else ''}.", *_remedies(served)]
    yield from section(
        _title(served), table, ("left", "right", "left"), (*sentences, *_assumed(served)), paint, markdown=markdown
    )


def _remedies(served: Served) -> Iterator[str]:
    if served.start == "starts":
        return
    if not served.remedies:
        yield "No single option changes that."
        return
    yield "It starts with:"
    yield from (f"  {remedy.option}: {remedy.effect}" for remedy in served.remedies)


def _assumed(served: Served) -> Iterator[str]:
    yield "Assumed:"
    yield from (f"  {text}" for text in served.assumptions)


def _table(serving: Serving, paint: TextStyle, *, markdown: bool) -> Iterator[str]:
    """Lines of a table over numbers of GPUs."""
    first = serving.served[0]
    rows = [
        (
            f"{served.options.tensor_parallel}",
            format_nbytes(served.stage.weights.estimate),
            format_nbytes(served.stage.activations.estimate),
            _bytes(served.stage.cache),
            _number(served.num_tokens),
            _ratio(served.concurrency),
            paint(served.start, _COLORS[served.start]),
        )
        for served in serving.served
    ]
    head = ("tp", "weights", "activations", "cache", "tokens", "at once", "")
    sentences = [f"--tp {each.tensor_parallel}: {each.reason}" for each in serving.refused]
    sentences += [f"--tp {each.options.tensor_parallel}: {each.reason}" for each in serving.served if each.reason]
    yield from section(
        _title(first, with_ranks=False),
        [head, *rows],
        ("right", "right", "right", "right", "right", "right", "left"),
        (*sentences, *_assumed(first)),
        paint,
        markdown=markdown,
    )


def _choices(serving: Serving, paint: TextStyle, *, markdown: bool) -> Iterator[str]:
    """Lines of a table of GPUs for so many users."""
    title = f"{serving.model}: the cheapest GPUs for {format_count(serving.users or 0, 'request')} at once"
    if not serving.choices:
        yield f"{title}: none of those that were tried."
        return
    priced = any(each.price is not None for each in serving.choices)
    head = ("GPUs", "", "tp", "at once, at least", *(("price",) if priced else ()))
    rows = [
        (
            f"{each.num_gpus} x {each.gpu}",
            format_nbytes(each.gpu_nbytes),
            f"{each.tensor_parallel}",
            f"{each.concurrency:.1f}",
            *((f"{each.price:g}",) if priced else ()),
        )
        for each in serving.choices
    ]
    sentence = "By the configuration's gpu-prices." if priced else "By memory: the configuration has no gpu-prices."
    alignment = ("left", "right", "right", "right", "right")[: len(head)]
    yield from section(title, [head, *rows], alignment, (sentence,), paint, markdown=markdown)


def _title(served: Served, *, with_ranks: bool = True) -> str:
    options = served.options
    version = ".".join(map(str, options.version))
    count = f"{served.num_gpus} x " if with_ranks and served.num_gpus > 1 else ""
    cache = options.dtype if options.kv_cache_dtype == "auto" else options.kv_cache_dtype
    quantized = f", {options.quantization}" if options.quantization else ""
    return (
        f"{served.model} on {options.engine} {version}, {count}{served.gpu_title} "
        f"({format_nbytes(served.gpu_nbytes)}): {options.dtype}{quantized}, cache {cache}, "
        f"share {options.utilization:g}, {options.max_num_batched_tokens} batched tokens"
    )


def _bytes(interval: Interval) -> str:
    return _with_bounds(*(format_nbytes(each) for each in (interval.low, interval.estimate, interval.high)))


def _number(interval: Interval) -> str:
    return _with_bounds(*(f"{each:,}" for each in (interval.low, interval.estimate, interval.high)))


def _ratio(ratio: Ratio) -> str:
    return _with_bounds(*(f"{each:.2f}" for each in (ratio.low, ratio.estimate, ratio.high)))


def _with_bounds(low: str, estimate: str, high: str) -> str:
    return estimate if low == high else f"{estimate} ({low} to {high})"
