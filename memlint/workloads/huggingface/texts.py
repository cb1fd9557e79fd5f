"""Texts as a model's tokenizer would make them, with the tokens that stand for images and recordings."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from memlint.targets.workload import BATCH, SEQUENCE, InputSpec
from memlint.workloads.config_parts import text_config
from memlint.workloads.huggingface.features import special_tokens
from memlint.workloads.model_sizes import DEFAULT_LENGTH, LONGEST

CHOICES = 4
"""Number of answers in a multiple choice."""

_POSITIONS = (
    *("max_position_embeddings", "n_positions", "max_target_positions", "max_seq_len", "max_sequence_length"),
    *("seq_length", "n_ctx"),
)
_MARKS = ("pad_token_id", "bos_token_id", "eos_token_id")
"""Attributes that name the tokens for padding, the beginning and the end of a text."""
_ROUND = 128
_TRANSCRIPT = 128
"""Tokens of a transcript, and of the text a sequence-to-sequence model writes from something else."""
_LEAST_TEXT = 64
"""Minimum number of ordinary tokens in a text."""

Runs = tuple[tuple[int, int], ...]


def vocabulary(config: Any) -> int:
    """Return the number of tokens in the vocabulary."""
    return int(getattr(text_config(config), "vocab_size", None) or getattr(config, "vocab_size", None) or 1000)


def positions_of(config: Any) -> int | None:
    """Return the number of tokens for which the model has positions; None if its config has no such number."""
    text = text_config(config)
    longest = next((value for name in _POSITIONS if isinstance(value := getattr(text, name, None), int)), 0)
    return longest if longest > 1 else None


def length_of_transcript(config: Any) -> int:
    """Return the tokens of a transcript, or fewer if the model has positions for fewer."""
    return min(_TRANSCRIPT, positions_of(config) or _TRANSCRIPT)


def lengths(config: Any, runs: Runs) -> Iterator[int]:
    """Yield sequence lengths to try: the config's maximum up to `LONGEST`, then shorter ones; `runs` always fit."""
    longest = positions_of(config)
    length = DEFAULT_LENGTH if longest is None else min(longest, LONGEST)
    # Tables of RoBERTa's kind have two rows that no position uses: 514 means 512.
    if length > _ROUND:
        length -= length % _ROUND
    least = sum(count for _, count in runs)
    if least:
        # One position above a round number would cost a tile of every matrix.
        yield max(length, -(-(least + _LEAST_TEXT) // _ROUND) * _ROUND)
        return
    yield length
    yield from (shorter for shorter in (512, 128, 32, 8) if shorter < length)


def text(config: Any, name: str, length: int | str, runs: Runs = ()) -> InputSpec:
    """Return tokens; if some stand for something else, `runs` of them come first and none of their kind after."""
    size = vocabulary(config)
    if not runs:
        return InputSpec(name, (BATCH, length), "int64", high=size)
    low, high = _widest_without(sorted(set(special_tokens(config)) | {value for value, _ in runs}), size)
    return InputSpec(name, (BATCH, length), "int64", low=low or None, high=high, runs=runs)


def ordinary(config: Any, spec: InputSpec) -> InputSpec:
    """Return the same tokens without those that mark beginnings, ends and padding, as far as most of them allow."""
    values = [getattr(text_config(config), name, None) for name in _MARKS]
    marks = {each for value in values for each in (value if isinstance(value, list) else [value]) if type(each) is int}
    excluded = sorted({*special_tokens(config), *marks})
    size = int(spec.high or vocabulary(config))
    if spec.runs or spec.dtype != "int64" or not excluded:
        return spec
    low, high = _widest_without(excluded, size)
    return replace(spec, low=low or None, high=high)


def kinds_of_tokens(name: str, runs: Runs, tokens: frozenset[int]) -> InputSpec:
    """1 where a token is one of `tokens`, 0 elsewhere."""
    return InputSpec(
        name,
        (BATCH, SEQUENCE),
        "int64",
        high=1,
        runs=tuple((int(value in tokens), count) for value, count in runs),
    )


def _widest_without(excluded: list[int], size: int) -> tuple[int, int]:
    edges = [-1, *(each for each in excluded if each < size), size]
    gaps = [(before + 1, after) for before, after in itertools.pairwise(edges)]
    return max(gaps, key=lambda gap: gap[1] - gap[0])
