"""The weights that one rank of an engine loads: fused matrices, cut among ranks, through PyTorch's caching allocator.

The rules are those that vLLM (0.19, model_executor/layers/linear.py, vocab_parallel_embedding.py) and SGLang (0.5,
srt/layers) have in common: queries, keys and values are one matrix, and so are gate and up; a matrix that makes
features is cut by its rows, one that takes them in by its columns, where biases stay whole; vocabularies are padded to
a multiple of 64; heads of keys and values are repeated where there are fewer than ranks.
"""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from memlint.memory.allocator.fast import peaks
from memlint.serving.model import Parameter, ServedModel

_FUSED = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"), ("q_a_proj", "kv_a_proj_with_mqa"))
"""Last names of modules whose parameters are one, in the order in which they stand."""
_OF_KEYS = ("k_proj", "v_proj", "key_proj", "value_proj")
_WHOLE = ("q_a_proj", "kv_a_proj_with_mqa", "gate", "router", "shared_expert_gate", "position_embedding")
"""Last names of linear modules that every rank has as a whole: routers, and what makes latents."""
_TAKES_IN = ("o_proj", "down_proj", "out_proj", "dense_4h_to_h", "fc2", "c_proj", "w2", "wo", "dense")
"""Last names of linear modules cut by their columns, whose biases stay whole."""
_VOCABULARY_MULTIPLE = 64


class Weight(NamedTuple):
    """One allocation of a rank."""

    name: str
    shape: tuple[int, ...]
    is_matrix: bool
    """True for what a linear module multiplies with, which quantization shrinks."""
    numel: int


def weights_of(
    model: ServedModel, ranks: int, layers: range | None = None, *, first: bool = True, last: bool = True
) -> list[Weight]:
    """Return the weights of one of `ranks` in the order in which an engine makes them.

    `layers` are those of the stage of a pipeline (None: all), which is its `first`, with the embeddings, or its `last`,
    with the head.
    """
    own = (
        each
        for each in model.parameters
        if (layers is None or each.layer in layers if each.layer >= 0 else _is_of_end(each, first=first, last=last))
    )
    return [_weight(group, model, ranks) for group in _fused(own)]


def _is_of_end(parameter: Parameter, *, first: bool, last: bool) -> bool:
    """Return True if a parameter outside of layers belongs to the stage: what follows the layers is of the last."""
    if not parameter.in_text:
        return first
    follows = "lm_head" in parameter.name or "norm" in parameter.name or "embed_out" in parameter.name
    return last if follows else first


def _fused(parameters: Iterable[Parameter]) -> list[list[Parameter]]:
    """Put parameters that an engine makes one together."""
    groups: dict[tuple[str, str], list[Parameter]] = {}
    for parameter in parameters:
        path, _, kind = parameter.name.rpartition(".")
        parent, _, last = path.rpartition(".")
        names = next((names for names in _FUSED if last in names), None) if parameter.in_text else None
        key = (parameter.name, "") if names is None else (f"{parent}.{names[0]}", kind)
        groups.setdefault(key, []).append(parameter)
    return list(groups.values())


def _weight(group: Sequence[Parameter], model: ServedModel, ranks: int) -> Weight:
    numel = sum(_numel_of_rank(each, model, ranks) for each in group)
    first = group[0]
    is_matrix = first.role in ("linear", "experts") and len(first.shape) > 1 and first.in_text
    last = first.name.rpartition(".")[0].rpartition(".")[2]
    return Weight(first.name, first.shape, is_matrix and last not in _WHOLE and "lm_head" not in first.name, numel)


def _numel_of_rank(parameter: Parameter, model: ServedModel, ranks: int) -> int:
    numel = math.prod(parameter.shape)
    module = parameter.name.rpartition(".")[0].rpartition(".")[2]
    if parameter.role == "vocabulary":
        padded = padded_vocabulary(parameter.shape[0])
        return numel // parameter.shape[0] * (-(-padded // ranks))
    if ranks == 1 or parameter.role == "other" or module in _WHOLE:
        return numel
    if len(parameter.shape) == 1 and module in _TAKES_IN:
        return numel
    if module in _OF_KEYS and parameter.in_text:
        return numel // min(ranks, model.num_kv_heads)
    return -(-numel // ranks)


def padded_vocabulary(size: int) -> int:
    """Return the rows of an embedding of `size` tokens: a multiple of 64."""
    return -(-size // _VOCABULARY_MULTIPLE) * _VOCABULARY_MULTIPLE


def allocated(sizes: Sequence[int]) -> int:
    """Return what `torch.cuda.memory_allocated` says after these allocations of bytes, none of which is freed."""
    return peaks(sizes, range(len(sizes)))[1]
