"""vLLM's V1 engine, by version: from weights and the profile run to blocks of the cache.

Each rule names the file of vLLM's wheel that it was read from. Wheels that were read: 0.8.5, 0.11.0, 0.16.0, 0.17.0,
0.19.0, 0.20.2, 0.22.1, 0.24.0, 0.27.0, 0.29.0 to 0.33.0. What no rule gives, memory of NCCL and of CUDA graphs, is an
interval around what vLLM 0.19 logged on H100 (fixtures/engine_logs/fitted.csv).
"""

import math
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from memlint.base.errors import UsageError
from memlint.base.units import format_nbytes
from memlint.memory.devices import Device
from memlint.report.model import Interval
from memlint.serving.cache import Layout, Lengths, layout_of
from memlint.serving.model import CacheLayer, Profile, ProfileOrder, Sampler, ServedModel
from memlint.serving.options import GIB, ServeOptions
from memlint.serving.quantization import Experts, method_named, sizes_of
from memlint.serving.served import Ratio, Served, Stage, Start, between, exact
from memlint.serving.weights import allocated, weights_of

OLDEST: Final = (0, 8)
NEWEST: Final = (0, 33)

_BLOCK = 16
"""Tokens of a block on CUDA: config/cache.py."""
_BLOCK_OF_LATENTS = 64
"""That of latent attention: FlashMLA's, platforms/cuda.py."""
_MOST_CAPTURED = 512
"""Largest batch with a CUDA graph: config/vllm.py."""
_CAPTURED = 51
"""Number of sizes up to that one: 1, 2, 4, then by 8 up to 256, then by 16."""
_GRAPHS_BASE, _GRAPHS_OF_LAYER = 0.376, 0.0167
"""GiB of all graphs at 51 sizes, and of each layer: line through two models of the fitted logs."""
_GRAPHS_LOW, _GRAPHS_HIGH = 0.5, 2.3
"""Smallest and largest ratio to that line of what vLLM measured or estimated in the fitted logs, rounded apart."""
_FIRST_WITH_TRITON = (0, 14)
"""First version whose log names Triton's kernels for experts of 4 bits on compute capability 9.0."""
_COMPARED, _NOT_COMPARED = (0.97, 1.05), (0.9, 1.25)
"""Bounds of activations: as far as logs of 0.19 are off, and wider for versions of which no log was compared."""


class _Rules(NamedTuple):
    """Settings that change from version to version."""

    utilization: float
    """Default of `--gpu-memory-utilization`: config/cache.py."""
    sampler: Sampler
    """v1/sample/ops/topk_topp_sampler.py: sorts up to 0.16, a Triton kernel from 0.17, FlashInfer by default since."""
    subtracts_graphs: bool
    """Default of VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS: envs.py."""
    counts_by_request: bool
    """True if the logged tokens are concurrency times length: v1/core/kv_cache_utils.py."""
    has_groups: bool
    """False where layers with a window are kept as if they had none."""
    keeps_workspace: bool
    """True from the first version with v1/worker/workspace.py."""
    ratio: float
    """Ratio of numbers of layers of two kinds below which the fewer are padded: v1/core/kv_cache_utils.py."""
    counters: str
    """Models whose runner keeps counters of every token for every sequence: v1/worker/gpu/sample/penalties.py."""


_RULES: Final = {
    (0, 8): _Rules(0.9, "sort", False, False, False, False, 1.0, "none"),
    (0, 11): _Rules(0.9, "sort", False, False, True, False, 1.0, "none"),
    (0, 16): _Rules(0.9, "sort", False, False, True, True, 1.25, "none"),
    (0, 17): _Rules(0.9, "threshold", False, False, True, True, 1.25, "none"),
    (0, 19): _Rules(0.9, "threshold", False, False, True, True, 1.5, "none"),
    (0, 20): _Rules(0.92, "threshold", True, True, True, True, 1.5, "none"),
    (0, 22): _Rules(0.92, "masks", True, True, True, True, 1.5, "some"),
    (0, 29): _Rules(0.92, "masks", True, True, True, True, 1.5, "all"),
}
"""By the first version that was read with them."""


def plan(
    model: ServedModel, options: ServeOptions, device: Device, profile: Callable[[ProfileOrder], Profile]
) -> Served:
    """Return what vLLM will log. Raises UsageError and WorkloadError for what it refuses at once."""
    options.require_support(device)
    rules = _rules_of(options.version)
    options = _with_defaults(options, model, device, rules)
    _require_divisible(model, options)
    requested = math.ceil(device.total_nbytes * (options.utilization or rules.utilization))
    lengths = Lengths(options.max_model_len or 0, options.max_num_batched_tokens or 0)
    layouts, stages, blocks = [], [], []
    for layers, is_first, is_last in _stages(model.num_layers, options.pipeline_parallel):
        layout = _layout(_kept(model, layers), options, rules)
        stage = _stage(model, options, device, profile, rules, requested, (layers, is_first, is_last))
        size = layout.nbytes_of_block
        layouts.append(layout)
        stages.append(stage)
        blocks.append(
            Interval(**{name: value // size if size else 1 for name, value in stage.cache.model_dump().items()})
        )
    tightest = min(range(len(stages)), key=lambda stage: blocks[stage].estimate)
    layout, num_blocks = layouts[tightest], blocks[tightest]
    needed = layout.blocks_of_request(lengths)
    concurrency = Ratio(**{name: value / max(1, needed) for name, value in num_blocks.model_dump().items()})
    start, reason = _start(
        options,
        device,
        requested,
        stages[tightest],
        num_blocks,
        needed,
        layout,
        subtracts_graphs=rules.subtracts_graphs,
    )
    tokens = {name: _tokens(value, needed, layout, lengths, rules) for name, value in num_blocks.model_dump().items()}
    copies = options.data_parallel
    return Served(
        model=model.name,
        options=options,
        gpu=device.name,
        gpu_title=device.title,
        gpu_nbytes=device.total_nbytes,
        num_gpus=options.tensor_parallel * options.pipeline_parallel * copies,
        requested=requested,
        stages=tuple(stages),
        tightest=tightest,
        subtracts_graphs=rules.subtracts_graphs,
        nbytes_of_block=layout.nbytes_of_block,
        num_groups=len(layout.groups),
        num_blocks=num_blocks,
        num_tokens=Interval(**tokens),
        concurrency=Ratio(**{name: copies * value for name, value in concurrency.model_dump().items()}),
        start=start,
        reason=reason,
        assumptions=tuple(_assumptions(model, options, device, rules)),
    )


def longest_length(served: Served, model: ServedModel) -> int:
    """Return the longest `--max-model-len` with which the engine starts for sure; 0 if there is none."""
    options, rules = served.options, _rules_of(served.options.version)
    lengths = Lengths(options.max_model_len or 0, options.max_num_batched_tokens or 0)
    layers = list(_stages(model.num_layers, options.pipeline_parallel))[served.tightest][0]
    return _layout(_kept(model, layers), options, rules).longest(served.num_blocks.low, lengths)


def _kept(model: ServedModel, layers: range) -> tuple[CacheLayer, ...]:
    """The cache of the layers of a stage."""
    return model.layers if len(layers) == model.num_layers else model.layers[layers.start : layers.stop]


def _rules_of(version: tuple[int, ...]) -> _Rules:
    if version < OLDEST:
        raise UsageError(
            f"vLLM {'.'.join(map(str, version))} is older than what was read", "Give --engine-version 0.8.0 or newer."
        )
    return next(rules for since, rules in reversed(_RULES.items()) if version[:2] >= since)


def _with_defaults(options: ServeOptions, model: ServedModel, device: Device, rules: _Rules) -> ServeOptions:
    """Put the server's defaults where nothing is given: engine/arg_utils.py."""
    total = device.total_nbytes
    if options.version >= (0, 20) and total >= 160 * GIB:
        tokens, sequences = 16384, 1024
    elif total >= 70 * GIB and not device.name.startswith("a100"):
        tokens, sequences = 8192, 1024
    else:
        tokens, sequences = 2048, 256
    given = {name: value for name, value in options.model_dump().items() if value is not None}
    defaults = {
        "utilization": rules.utilization,
        "max_model_len": model.max_positions,
        "max_num_batched_tokens": tokens,
        "max_num_seqs": min(sequences, given.get("max_num_batched_tokens", tokens)),
        "quantization": model.quantization,
    }
    return ServeOptions.model_validate({**defaults, **given})


def _require_divisible(model: ServedModel, options: ServeOptions) -> None:
    if model.num_heads % options.tensor_parallel:
        raise UsageError(
            f"{model.num_heads} attention heads cannot be divided among {options.tensor_parallel} GPUs, so that vLLM "
            "refuses to start",
            f"Give --tp a divisor of {model.num_heads}.",
        )
    if options.pipeline_parallel > 1 and len(model.layers) != model.num_layers:
        raise UsageError("stages are not modelled where layers share caches or keep two things", "Leave --pp out.")
    if options.pipeline_parallel > model.num_layers:
        raise UsageError(
            f"{model.num_layers} layers make no {options.pipeline_parallel} stages", "Give a smaller --pp."
        )


def _stages(num_layers: int, number: int) -> Iterator[tuple[range, bool, bool]]:
    """Yield the layers of each stage, and whether it is the first or last: distributed/utils.py."""
    sizes = [num_layers // number] * number
    for position in range(2, num_layers % number + 2):
        sizes[-position] += 1
    start = 0
    for position, size in enumerate(sizes):
        yield range(start, start + size), position == 0, position == number - 1
        start += size


def _layout(layers: tuple[CacheLayer, ...], options: ServeOptions, rules: _Rules) -> Layout:
    if not rules.has_groups and any(layer.attention == "full" for layer in layers):
        layers = tuple(
            layer.model_copy(update={"attention": "full", "window": 0})
            if layer.attention in ("sliding", "chunked")
            else layer
            for layer in layers
        )
    block = _BLOCK_OF_LATENTS if any(layer.attention == "latent" for layer in layers) else _BLOCK
    return layout_of(layers, options.tensor_parallel, options.cache_itemsize, options.itemsize, block, rules.ratio)


def _stage(
    model: ServedModel,
    options: ServeOptions,
    device: Device,
    profile: Callable[[ProfileOrder], Profile],
    rules: _Rules,
    requested: int,
    place: tuple[range, bool, bool],
) -> Stage:
    layers, is_first, is_last = place
    method = method_named(options.quantization or "")
    own = weights_of(model, options.tensor_parallel, layers, first=is_first, last=is_last)
    experts = _experts(model, options, device)
    sizes = [size for weight in own for size in sizes_of(weight, options.itemsize, method, experts)]
    weights = exact(allocated([*sizes, model.rotary * options.itemsize]))
    order = ProfileOrder(
        gpu=device.name,
        dtype=options.dtype,
        tensor_parallel=options.tensor_parallel,
        num_tokens=options.max_num_batched_tokens or 0,
        num_sequences=options.max_num_seqs or 0,
        sampler=rules.sampler,
        is_last_stage=is_last,
        is_compiled=not options.enforce_eager,
        quantizes_inputs=method is not None and method.quantizes_inputs,
        keeps_workspace=rules.keeps_workspace and options.quantization != "mxfp4",
    )
    activations = profile(order).nbytes + (_of_encoder(model, options) if is_first else 0)
    least, most = _COMPARED if options.version[:2] == (0, 19) else _NOT_COMPARED
    stage = Stage(
        weights=weights,
        activations=between(least * activations, activations, most * activations),
        buffers=_counters(model, options, rules) if is_last else exact(0),
        non_torch=_non_torch(options),
        cuda_graphs=_graphs(len(layers), options),
        cache=exact(0),
    )
    taken = [stage.weights, stage.activations, stage.buffers, stage.non_torch]
    taken += [stage.cuda_graphs] if rules.subtracts_graphs else []
    cache = between(
        max(0, requested - sum(each.high for each in taken)),
        max(0, requested - sum(each.estimate for each in taken)),
        max(0, requested - sum(each.low for each in taken)),
    )
    return stage.model_copy(update={"cache": cache})


def _experts(model: ServedModel, options: ServeOptions, device: Device) -> Experts:
    """Padding of experts of 4 bits: model_executor/layers/quantization/mxfp4.py, by what multiplies them.

    On compute capability 9.0 that is Marlin, and Triton's own kernels from a version between 0.11 and 0.14 on, which
    pad the packed inputs alone: GPT-OSS-120B logs 65.97 GiB with vLLM 0.10 (issue 23278) and 64.38 with 0.14 (33155).
    """
    if device.capability == (9, 0) and options.version[:2] >= _FIRST_WITH_TRITON:
        hidden, intermediate, inputs = 1, 64, 256
    else:
        hidden, intermediate, inputs = 256, 256 if device.capability[0] == 10 else 128, 1
    return Experts(model.hidden_size, options.tensor_parallel, hidden, intermediate, inputs)


def _of_encoder(model: ServedModel, options: ServeOptions) -> int:
    """Bytes of images and their features that live while the text's part is profiled.

    As many images as the batched tokens hold: v1/worker/gpu_model_runner.py, profile_run.
    """
    if model.encoder is None:
        return 0
    items = max(1, (options.max_num_batched_tokens or 0) // model.encoder.tokens_of_item)
    values = model.encoder.tokens_of_item * model.hidden_size + model.encoder.values_of_item
    return items * values * options.itemsize


def _counters(model: ServedModel, options: ServeOptions, rules: _Rules) -> Interval:
    """An int32 for each token of the vocabulary and each sequence, and a bit: PenaltiesState."""
    row = 4 * (model.vocab_size + -(-model.vocab_size // 32))
    nbytes = (options.max_num_seqs or 0) * row
    if rules.counters == "none":
        return exact(0)
    return exact(nbytes) if rules.counters == "all" else between(0, nbytes, nbytes)


def _non_torch(options: ServeOptions) -> Interval:
    """Memory of libraries beyond a bare process, as fitted logs of 0.19 on H100 have it.

    0.24 to 0.26 GiB on one GPU (0.13 before 0.18), and 2.06 to 2.17 with tensor parallelism; 0.07 on a stage of a
    pipeline, whose communicators were there before. Bounds are wide, because other versions and GPUs differ.
    """
    if options.tensor_parallel > 1:
        return between(0.4 * GIB, 2.1 * GIB, 2.8 * GIB)
    if options.pipeline_parallel > 1:
        return between(0.05 * GIB, 0.07 * GIB, 0.5 * GIB)
    likely = 0.25 if options.version >= (0, 18) else 0.13
    return between(0.1 * GIB, likely * GIB, 0.5 * GIB)


def _graphs(num_layers: int, options: ServeOptions) -> Interval:
    """CUDA graphs of a stage: a share for each captured size, and for each layer."""
    if options.enforce_eager:
        return exact(0)
    most = min(_MOST_CAPTURED, 2 * (options.max_num_seqs or 0), options.max_num_batched_tokens or 0)
    sizes = sum(1 for size in (1, 2, 4, *range(8, 256, 8), *range(256, _MOST_CAPTURED + 1, 16)) if size <= most)
    likely = (_GRAPHS_BASE + _GRAPHS_OF_LAYER * num_layers) * GIB * sizes / _CAPTURED
    return between(_GRAPHS_LOW * likely, likely, _GRAPHS_HIGH * likely)


def _tokens(num_blocks: int, needed: int, layout: Layout, lengths: Lengths, rules: _Rules) -> int:
    """The size of the cache as vLLM logs it."""
    if rules.counts_by_request:
        return int(num_blocks / max(1, needed) * lengths.max_model_len)
    return num_blocks // max(1, len(layout.groups)) * layout.num_tokens


def _start(
    options: ServeOptions,
    device: Device,
    requested: int,
    stage: Stage,
    num_blocks: Interval,
    needed: int,
    layout: Layout,
    *,
    subtracts_graphs: bool,
) -> tuple[Start, str]:
    if stage.weights.low > requested:
        return "does not start", "the weights alone are larger than what the engine may take of the GPU"
    if requested > device.total_nbytes - device.context_low:
        return "does not start", "the GPU has less free than the utilization asks for"
    nbytes = format_nbytes(needed * layout.nbytes_of_block)
    need = f"one request of {options.max_model_len:,} tokens needs {nbytes} of cache"
    if num_blocks.high < needed:
        return "does not start", f"{need}, and {format_nbytes(stage.cache.estimate)} are left"
    if num_blocks.low < needed:
        return "may start", f"{need}, and {format_nbytes(stage.cache.low)} may be all that is left"
    beside = 0 if subtracts_graphs else stage.cuda_graphs.estimate
    if requested + beside > device.total_nbytes - device.context_nbytes:
        return "may start", f"{format_nbytes(beside)} of CUDA graphs may not fit beside what the engine takes"
    return "starts", ""


def _assumptions(model: ServedModel, options: ServeOptions, device: Device, rules: _Rules) -> Iterator[str]:
    yield "the engine is alone on its GPUs, and starts as a server with its own defaults"
    if options.version[:2] > NEWEST:
        yield f"vLLM {'.'.join(map(str, NEWEST))} is the newest that was read: the rules are its"
    if options.version[:2] != (0, 19) or not device.name.startswith("h100"):
        yield "memory beyond PyTorch's and of CUDA graphs was seen in logs of vLLM 0.19 on H100, and may differ here"
    if rules.counters == "some":
        yield "some models keep counters of every token for every sequence in this version: counted as if this one did"
    if not rules.subtracts_graphs and not options.enforce_eager:
        yield "CUDA graphs are captured from memory that the engine does not give itself"
    if model.encoder is not None:
        yield "images of the largest size, as many as the batched tokens hold, live during the profile run"
    if options.data_parallel > 1:
        yield "each of the copies of the model serves its own requests"
