"""Labels with which the head of a Hugging Face model is trained."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from memlint.targets.workload import InputSpec
from memlint.workloads.huggingface.texts import CHOICES, length_of_transcript, vocabulary
from memlint.workloads.name_table import HEADS, as_input, holds

Specs = tuple[InputSpec, ...]


def labels(model: Any, names: frozenset[str], main: Specs, length: int) -> Iterator[Specs]:
    """Labels for the head of `model`, the likeliest first; none for a model without a head."""
    config, kind = model.config, type(model).__name__
    tokens = next((spec for spec in main if spec.name == "input_ids"), None)
    num_labels = getattr(config, "num_labels", 2)
    facts = {
        "return_loss": "return_loss" in names,
        "positions": {"start_positions", "end_positions"} <= names,
        "labels": "labels" in names,
        "tokens": tokens is not None,
        "next_sentence": "next_sentence_label" in names,
        "detection": "Detection" in kind or ("Segmentation" in kind and "mask_labels" in names),
        "semantic_segmentation": "SemanticSegmentation" in kind,
        "masked_image": "MaskedImage" in kind,
        "classification": ("Classification" in kind and "Token" not in kind) or "MultipleChoice" in kind,
    }
    holding = frozenset(fact for fact, is_true in facts.items() if is_true)
    words: dict[str, Callable[[], Any]] = {
        "@length": lambda: length,
        "@num_labels": lambda: num_labels,
        "@num_choices": lambda: CHOICES if "Choice" in kind else num_labels,
        "@num_words": lambda: num_labels if "TokenClassification" in kind else vocabulary(config),
        "@vocabulary": lambda: vocabulary(config),
        "@transcript": lambda: length_of_transcript(config),
        "@tokens": lambda: tokens.shape if tokens is not None else None,
        "@sides": lambda: main[0].shape[2:],
    }
    for rows in HEADS:
        if holds(rows[0], holding):
            specs = (as_input(row, name, lambda word: words[word]()) for row in rows for name in row.names.split())
            yield tuple(spec for spec in specs if spec is not None)
