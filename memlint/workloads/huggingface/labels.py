"""What the head of a Hugging Face model is trained with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from memlint.targets.workload import BATCH, InputSpec
from memlint.workloads.huggingface.texts import CHOICES, vocabulary

TRANSCRIPT = 128
"""Tokens of a transcript, and of the text a sequence-to-sequence model writes from something else."""
BOXES = 8
"""Objects per image in detection."""

Specs = tuple[InputSpec, ...]


def labels(model: Any, names: frozenset[str], main: Specs, length: int) -> Iterator[Specs]:
    """Labels for the head of `model`, the likeliest first; none for a model without a head."""
    config, kind = model.config, type(model).__name__
    tokens = next((spec for spec in main if spec.name == "input_ids"), None)
    num_labels = getattr(config, "num_labels", 2)
    if "return_loss" in names:
        yield (InputSpec.constant("return_loss", value=True),)
    if {"start_positions", "end_positions"} <= names and tokens is not None:
        yield tuple(InputSpec(name, (BATCH,), "int64", high=length) for name in ("start_positions", "end_positions"))
    if "labels" not in names:
        return
    if "Detection" in kind or ("Segmentation" in kind and "mask_labels" in names):
        yield (
            InputSpec("labels[].class_labels", (BOXES,), "int64", high=num_labels),
            InputSpec("labels[].boxes", (BOXES, 4), low=0.1, high=0.4),
        )
    if "SemanticSegmentation" in kind:
        yield (InputSpec("labels", (BATCH, *main[0].shape[2:]), "int64", high=num_labels),)
    if "MaskedImage" in kind:
        return
    if ("Classification" in kind and "Token" not in kind) or "MultipleChoice" in kind:
        yield (InputSpec("labels", (BATCH,), "int64", high=CHOICES if "Choice" in kind else num_labels),)
    if tokens is not None:
        high = num_labels if "TokenClassification" in kind else vocabulary(config)
        expected = InputSpec("labels", tokens.shape, "int64", high=high)
        if "next_sentence_label" in names:
            yield (expected, InputSpec("next_sentence_label", (BATCH,), "int64", high=2))
        yield (expected,)
    else:
        yield (InputSpec("labels", (BATCH, TRANSCRIPT), "int64", low=1, high=vocabulary(config)),)
    yield (InputSpec("labels", (BATCH,), "int64", high=num_labels),)
