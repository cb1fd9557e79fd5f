"""The profile run of an engine: a step on as many tokens as it will ever batch, and the sampler, without any cache.

The layers are the model's own. The engine computes no attention here, since there is no cache yet; its output is
allocated all the same. A stage of a pipeline that passes its hidden states and their residual on has both beside its
layers (fitted to a log of vLLM 0.19). Queries, keys, values and output of an attention live on where the model is in
float32 (fitted to another). Where matrices have 8 bits, so have their inputs, of which the widest lives beside what it
was made from. Experts run as one fused kernel with a buffer for their rows (vLLM 0.19,
model_executor/layers/fused_moe/fused_moe.py; SGLang 0.5, srt/layers/moe/fused_moe_triton).
"""

from typing import Any

import torch

from memlint.base.errors import WorkloadError
from memlint.base.signatures import signature_of
from memlint.memory.allocator.fast import peaks
from memlint.memory.allocator.settings import AllocatorSettings
from memlint.memory.devices import device_named
from memlint.serving.model import Profile, ProfileOrder, Sampler
from memlint.serving.weights import padded_vocabulary
from memlint.session.serving.rank_config import head_of, heads_of, rank_config
from memlint.tracing.workload_errors import trace_of_workload
from memlint.workloads.huggingface.models import model_class

_ATTENTION = "memlint_serving"
"""Name of the attention that is not computed, in the registry of transformers."""


def profile(config: Any, order: ProfileOrder) -> Profile:
    """Run the profile run of `order` for the model of `config`. Raises WorkloadError."""
    text = config.get_text_config()
    own = rank_config(text, order.tensor_parallel, _num_layers_of_all_kinds(text))
    run = _ProfileRun(text, own, order)
    trace = trace_of_workload(run, device_named(order.gpu), AllocatorSettings())
    sizes = [buffer.nbytes for buffer in trace.buffers]
    start = trace.nodes[trace.step_nodes[0]].event
    nbytes = peaks(sizes, trace.events)[1] - peaks(sizes, trace.events[:start])[1]
    return Profile(nbytes=nbytes)


def _num_layers_of_all_kinds(text: Any) -> int:
    """Number of first layers among which there is one of every kind; they take as much as all of them."""
    number = int(text.num_hidden_layers)
    kinds = [_kind_of_layer(text, layer) for layer in range(number)]
    return max(2, *(kinds.index(kind) + 1 for kind in {*kinds})) if number > 1 else 1


def _kind_of_layer(text: Any, layer: int) -> tuple[object, ...]:
    types = getattr(text, "layer_types", None) or getattr(text, "layers_block_type", None) or ()
    mlp_types = getattr(text, "mlp_layer_types", None) or ()
    moe_layers = getattr(text, "moe_layers", None)
    return (
        types[layer] if layer < len(types) else None,
        mlp_types[layer] if layer < len(mlp_types) else None,
        layer in moe_layers if isinstance(moe_layers, list) else None,
        layer >= int(getattr(text, "first_k_dense_replace", 0) or 0),
    )


class _ProfileRun:
    """The program that is traced."""

    def __init__(self, whole: Any, config: Any, order: ProfileOrder) -> None:
        self.order = order
        self.model: Any = None
        self._decoder: Any = None
        self._workspaces: dict[int, torch.Tensor] = {}
        """Buffers of experts that are kept, by their number of values."""
        self._whole = whole
        self._config = config
        self._dtype = getattr(torch, order.dtype)

    def setup(self) -> None:
        """Build the rank's model on the GPU."""
        import transformers  # noqa: PLC0415 - slow, and only needed here

        transformers.AttentionInterface.register(_ATTENTION, _no_attention)
        transformers.AttentionMaskInterface.register(_ATTENTION, _no_mask)
        self._config._attn_implementation = _ATTENTION
        kind = model_class(self._config, transformers)
        try:
            model = kind(self._config)
        except KeyError as error:  # it has a table of attentions of its own
            raise WorkloadError(f"{kind.__name__} cannot run without computing its attention", "") from error
        self.model = model.to("cuda", self._dtype).eval()
        if self.model.get_output_embeddings() is None:
            raise WorkloadError(f"{kind.__name__} has no head that gives logits of a vocabulary", "")
        embeddings = self.model.get_input_embeddings()
        self._decoder = next(each for each in self.model.children() if embeddings in [*each.modules()])
        for module in [*self.model.modules()]:
            experts = getattr(module, "experts", None)
            if experts is not None and _is_fused_experts(experts):
                experts.forward = _FusedExperts(experts, self.order, self._workspaces)
                if len(signature_of(type(experts).forward).parameters) == 2:  # it takes the rows of every expert
                    module.forward = _BlockOfExperts(module)

    @torch.inference_mode()
    def step(self) -> None:
        """Run the layers, and the sampler on the last stage."""
        order = self.order
        tokens = torch.zeros(1, order.num_tokens, dtype=torch.int64, device="cuda")
        most = int(getattr(self._config, "max_position_embeddings", None) or order.num_tokens)
        positions = torch.arange(order.num_tokens, device="cuda")[None] % most
        beside = self._empty(order.num_tokens, self._width_beside) if self._width_beside else None
        hidden = self._decoder(input_ids=tokens, position_ids=positions, use_cache=False)[0][0]
        del beside
        if not order.is_last_stage:
            return
        rows = min(order.num_sequences, order.num_tokens)
        sampled = torch.rand_like(hidden[torch.zeros(rows, dtype=torch.int64, device="cuda")])
        _sample(self._logits(sampled), order.sampler, self._num_multiprocessors)

    @property
    def _width_beside(self) -> int:
        """Values of a token that live while the layers run, and are not theirs."""
        config, order = self._config, self.order
        width = 0 if order.is_last_stage else 2 * int(config.hidden_size)
        if order.dtype == "float32":
            heads, kv_heads = heads_of(config)
            width += 2 * (heads + kv_heads) * head_of(config)
        if order.quantizes_inputs:
            width += -(-int(getattr(config, "intermediate_size", 0) or 0) // self._dtype.itemsize)
        return width

    @property
    def _num_multiprocessors(self) -> int:
        return device_named(self.order.gpu).num_sms

    def _empty(self, *shape: int) -> torch.Tensor:
        return torch.empty(*shape, dtype=self._dtype, device="cuda")

    def _logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits of the whole vocabulary, which ranks gather."""
        logits: torch.Tensor = self.model.get_output_embeddings()(hidden)
        size = self._whole.vocab_size
        if self.order.tensor_parallel > 1:
            logits = self._empty(len(hidden), padded_vocabulary(size))
        logits = logits[..., :size]
        cap = getattr(self._whole, "final_logit_softcapping", None)
        return logits if cap is None else torch.tanh(logits / cap) * cap


def _sample(logits: torch.Tensor, sampler: Sampler, num_multiprocessors: int) -> torch.Tensor:
    """Sample from logits as the engine does at first: some sequences greedily, all cut to k and p."""
    rows, size = logits.shape
    scores = logits.to(torch.float32)
    greedy = scores.argmax(dim=-1)
    temperatures = torch.full((rows, 1), 0.5, device="cuda")
    scores = scores.div_(temperatures)
    if sampler == "sort":
        scores = _cut_by_sorting(scores)
    elif sampler == "threshold":
        copies = scores.new_empty(min(num_multiprocessors, rows), size)
        probabilities = scores.softmax(dim=-1, dtype=torch.float32)
        chosen = _chosen(probabilities)
        del copies
        return torch.where(temperatures[:, 0] < 1e-5, greedy, chosen)
    else:
        masked = torch.empty_like(scores)
        masked.copy_(scores)
        return masked.softmax(dim=-1).argmax(dim=-1)
    return torch.where(temperatures[:, 0] < 1e-5, greedy, _chosen(scores.softmax(dim=-1, dtype=torch.float32)))


def _cut_by_sorting(scores: torch.Tensor) -> torch.Tensor:
    ordered, indices = scores.sort(dim=-1, descending=False)
    least = ordered.gather(1, torch.zeros(len(scores), 1, dtype=torch.int64, device="cuda"))
    ordered.masked_fill_(ordered < least, -float("inf"))
    probabilities = ordered.softmax(dim=-1)
    sums = torch.cumsum(probabilities, dim=-1, out=probabilities)
    mask = sums <= torch.full((len(scores), 1), 0.1, device="cuda")
    ordered.masked_fill_(mask, -float("inf"))
    return scores.scatter_(dim=-1, index=indices, src=ordered)


def _chosen(probabilities: torch.Tensor) -> torch.Tensor:
    noise = torch.empty_like(probabilities)
    noise.exponential_()
    return probabilities.div_(noise).argmax(dim=-1)


def _no_attention(
    _module: object, query: torch.Tensor, _key: torch.Tensor, value: torch.Tensor, *_args: object, **_kwargs: object
) -> tuple[torch.Tensor, None]:
    batch, heads, length, _size = query.shape
    return query.new_empty(batch, length, heads, value.shape[-1]), None


def _no_mask(*_args: object, **_kwargs: object) -> None:
    return None


def _is_fused_experts(module: Any) -> bool:
    own = dict(module.named_parameters(recurse=False))
    return {"gate_up_proj", "down_proj"} <= own.keys() and own["down_proj"].dim() == 3


class _FusedExperts:
    """Experts as one kernel, with one buffer for the rows of their products, and an output that ranks then add.

    Rows of gate and up and of the output share their part of the buffer. The operator declares that it writes its
    input, so that compiled code copies it (vLLM 0.19, fused_moe/runner/default_moe_runner.py). vLLM 0.19 keeps the
    largest buffer (v1/worker/workspace.py), except for experts in mxfp4, whose kernels have none.
    """

    def __init__(self, module: Any, order: ProfileOrder, kept: dict[int, torch.Tensor]) -> None:
        self._down = module.down_proj
        self._order = order
        self._kept = kept

    def __call__(self, hidden: torch.Tensor, *routes: Any, times: int = 1, **_kwargs: Any) -> torch.Tensor:
        rows = hidden.reshape(-1, hidden.shape[-1])
        of_tokens = [each for each in routes if isinstance(each, torch.Tensor) and each.shape[0] == len(rows)]
        times = min((each.shape[1] for each in of_tokens if each.dim() == 2), default=times)
        width, size = self._down.shape[1:].numel() // hidden.shape[-1], hidden.shape[-1]
        number = len(rows) * times * (max(width, size) + max(2 * width, size))
        copied = torch.empty_like(hidden) if self._order.is_compiled else None
        buffer = self._kept.get(number)
        if buffer is None:
            buffer = rows.new_empty(number)
            if self._order.keeps_workspace:
                self._kept[number] = buffer
        output = torch.empty_like(hidden)
        added = torch.empty_like(hidden) if self._order.tensor_parallel > 1 else output
        del buffer, copied
        return added


class _BlockOfExperts:
    """A block that would give every expert all rows: as engines do, each expert gets the rows routed to it."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def __call__(self, hidden: torch.Tensor) -> tuple[torch.Tensor, None]:
        shared = self._module.shared_expert(hidden)
        return shared.add_(self._module.experts(hidden, times=self._module.top_k)), None
