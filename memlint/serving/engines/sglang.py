"""SGLang: a share of the GPU for weights and cache, the rest for activations and graphs.

Each rule names the file of the wheel of 0.5.23 that it was read from, below sglang/srt.
"""

from collections.abc import Callable
from typing import Final

from memlint.base.errors import UsageError, WorkloadError
from memlint.memory.devices import Device
from memlint.report.model import Interval
from memlint.serving.model import CacheLayer, Profile, ProfileOrder, ServedModel
from memlint.serving.options import ServeOptions
from memlint.serving.quantization import method_named, sizes_of
from memlint.serving.served import Ratio, Served, Stage, Start, between, exact
from memlint.serving.weights import allocated, weights_of

OLDEST: Final = (0, 5)
NEWEST: Final = (0, 5, 23)

_MIB = 2**20
_DEFAULTS = ((20, 2048, 8, 8), (35, 4096, 48, 160), (60, 4096, 32, 160), (160, 8192, 256, 512))
"""GiB below which a GPU has these: chunk of prefill, largest decoded batch below 4 GPUs, and from 4 on.

arg_groups/memory_hook.py, handle_gpu_memory_settings.
"""
_LARGEST = 16384, 512, 512
_FLOOR = 512
_OF_CHUNK = 1.5
_OF_RANKS = 1024 / 8
_OF_DECODED = 2
_OF_CAPTURED_CHUNK = 8
_OF_LATENTS = 1.5 * 1024
_LEAST_ON_LARGE = 10 * 1024
"""MiB of the reserve: fixed, for each token of a chunk, for each GPU, for each sequence of the largest decoded batch,
for each captured size of a chunk (all of them with latent attention), and the least above 60 GiB."""
_CAPTURED = (
    *range(4, 33, 4),
    *range(48, 257, 16),
    *range(288, 513, 32),
    *range(576, 1025, 64),
    *range(1280, 4097, 256),
    *range(4608, 16385, 512),
)
"""Sizes of chunks with a CUDA graph: arg_groups/cuda_graph_hook.py."""
_WINDOWED_SHARE = 0.8
"""Tokens of layers with a window for each token of the others: swa_full_tokens_ratio."""
_OF_IMAGES = 0.95
"""Share left of the static share for models that read images, by the smallest of their encoders."""
_NON_TORCH = (0.0, 0.1, 0.6), (0.1, 1.4, 2.8)
"""GiB that libraries take while the model loads, on one GPU, and on several: the second fits the one published cache of
which the share is known (fixtures/engine_logs, s01), the bounds are those of vLLM."""
_MEASURED_SPREAD = 0.02
"""Memory held before loading differs from the context by up to this share of the GPU."""


def plan(
    model: ServedModel, options: ServeOptions, device: Device, profile: Callable[[ProfileOrder], Profile]
) -> Served:
    """Return what SGLang will log. Raises UsageError and WorkloadError for what it refuses, or what is not modelled."""
    options.require_support(device)
    if options.pipeline_parallel > 1:
        raise UsageError("stages of a pipeline are not modelled for SGLang", "Leave --pp out.")
    if any(layer.attention == "state" for layer in model.layers):
        raise WorkloadError("layers with a state are not modelled for SGLang", "Type --engine vllm.")
    if model.num_heads % options.tensor_parallel:
        raise UsageError(
            f"{model.num_heads} attention heads cannot be divided among {options.tensor_parallel} GPUs",
            f"Give --tp a divisor of {model.num_heads}.",
        )
    options, decoded = _with_defaults(options, model, device)
    share = options.utilization or 0
    method = method_named(options.quantization or "")
    sizes = [
        size for each in weights_of(model, options.tensor_parallel) for size in sizes_of(each, options.itemsize, method)
    ]
    weights = exact(allocated([*sizes, model.rotary * options.itemsize]))
    order = ProfileOrder(
        gpu=device.name,
        dtype=options.dtype,
        tensor_parallel=options.tensor_parallel,
        num_tokens=options.max_num_batched_tokens or 0,
        num_sequences=decoded,
        sampler="masks",
        is_last_stage=True,
        is_compiled=False,
        quantizes_inputs=method is not None and method.quantizes_inputs,
        keeps_workspace=False,
    )
    non_torch = between(*(each * 2**30 for each in _NON_TORCH[options.tensor_parallel > 1]))
    # What is free before loading times the share, less what loading takes: mem_cache/kv_cache_configurator.py.
    least, likely, most = (
        max(0, int((device.total_nbytes - used) * share) - weights.estimate - others)
        for used, others in (
            (device.context_high + int(_MEASURED_SPREAD * device.total_nbytes), non_torch.high),
            (device.context_nbytes, non_torch.estimate),
            (device.context_low, non_torch.low),
        )
    )
    stage = Stage(
        weights=weights,
        activations=exact(profile(order).nbytes),
        buffers=exact(0),
        non_torch=non_torch,
        cuda_graphs=between(0, decoded * _OF_DECODED * _MIB, decoded * 4 * _MIB),
        cache=Interval(low=least, estimate=likely, high=most),
    )
    cell = _nbytes_of_token(model.layers, options)
    tokens = {name: int(value // cell) for name, value in stage.cache.model_dump().items()}
    length = options.max_model_len or 1
    copies = options.data_parallel
    start, reason = _start(tokens, length, stage, device, share)
    return Served(
        model=model.name,
        options=options,
        gpu=device.name,
        gpu_title=device.title,
        gpu_nbytes=device.total_nbytes,
        num_gpus=options.tensor_parallel * copies,
        requested=int((device.total_nbytes - device.context_nbytes) * share),
        stages=(stage,),
        tightest=0,
        subtracts_graphs=False,
        nbytes_of_block=int(cell),
        num_groups=1,
        num_blocks=Interval(**tokens),
        num_tokens=Interval(**tokens),
        concurrency=Ratio(**{name: copies * value / length for name, value in tokens.items()}),
        start=start,
        reason=reason,
        assumptions=(
            "the engine is alone on its GPUs, and starts with its own defaults",
            "no full log of SGLang was compared: what is free before loading is the GPU less a CUDA context",
            "activations and CUDA graphs have to fit into the rest of the GPU, which SGLang does not check",
        ),
    )


def longest_length(served: Served, model: ServedModel) -> int:  # noqa: ARG001 -- engines that have blocks need it
    """Return the longest `--context-length` of which one request fits for sure."""
    return min(served.num_tokens.low, served.options.max_model_len or served.num_tokens.low)


def _with_defaults(options: ServeOptions, model: ServedModel, device: Device) -> tuple[ServeOptions, int]:
    """Put the defaults where nothing is given, and return the largest decoded batch."""
    gib = device.total_nbytes / 2**30
    chunk, few, many = next((rest for (below, *rest) in _DEFAULTS if gib < below), _LARGEST)
    decoded = few if options.tensor_parallel < 4 else many
    if options.max_num_seqs is not None:
        decoded = min(decoded, options.max_num_seqs)
    chunk = options.max_num_batched_tokens or chunk
    reserved = _FLOOR + _OF_CHUNK * max(chunk, 2048) + _OF_RANKS * options.tensor_parallel
    if not options.enforce_eager:
        latent = any(layer.attention == "latent" for layer in model.layers)
        captured = sum(1 for size in _CAPTURED if size <= chunk)
        reserved += _OF_DECODED * decoded + (_OF_LATENTS if latent else _OF_CAPTURED_CHUNK * captured)
    total = device.total_nbytes / _MIB
    if gib > 60:
        reserved = max(reserved, _LEAST_ON_LARGE)
    share = round((total - reserved) / total, 3) * (1.0 if model.encoder is None else _OF_IMAGES)
    given = {name: value for name, value in options.model_dump().items() if value is not None}
    defaults = {
        "utilization": share,
        "max_model_len": model.max_positions,
        "max_num_batched_tokens": chunk,
        "quantization": model.quantization,
    }
    return ServeOptions.model_validate({**defaults, **given}), decoded


def _nbytes_of_token(layers: tuple[CacheLayer, ...], options: ServeOptions) -> float:
    """Bytes of a token in all layers; those with a window keep a share of the tokens, unless all have one."""

    def nbytes(layer: CacheLayer) -> float:
        heads = max(1, layer.num_heads // options.tensor_parallel)
        return heads * (layer.head + layer.head_of_value) * options.cache_itemsize

    whole = [nbytes(each) for each in layers if each.attention in ("full", "latent", "chunked")]
    windowed = [nbytes(each) for each in layers if each.attention == "sliding"]
    return sum(whole) + (_WINDOWED_SHARE if whole else 1.0) * sum(windowed)


def _start(tokens: dict[str, int], length: int, stage: Stage, device: Device, share: float) -> tuple[Start, str]:
    if not tokens["high"]:
        return "does not start", "the weights leave no memory for the cache within the static share"
    if not tokens["low"]:
        return "may start", "the weights may leave no memory for the cache within the static share"
    if tokens["low"] < length:
        return "may start", f"the cache may hold fewer than {length} tokens: longer requests are refused"
    rest = (1 - share) * (device.total_nbytes - device.context_nbytes)
    if stage.activations.estimate + stage.cuda_graphs.estimate > rest:
        return "may start", "activations and CUDA graphs need more than the rest of the GPU: lower the static share"
    return "starts", ""
