"""The inputs Hugging Face models take, by modality and head."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from memlint.workloads.guess.model_sizes import DEFAULT_IMAGE_SIZE, DEFAULT_LENGTH, LONGEST
from memlint.workloads.spec import BATCH, SEQUENCE, InputSpec

SAMPLES = 160_000
"""Speech recordings: ten seconds at 16 kHz."""
FRAMES = 3000
"""Spectrograms: thirty seconds at 100 frames a second."""
TRANSCRIPT = 128
"""Tokens of a transcript, and of the text a sequence-to-sequence model writes from something else."""
BOXES = 8
"""Objects per image in detection."""
CHOICES = 4
"""Answers of a multiple choice."""

_POSITIONS = (
    *("max_position_embeddings", "n_positions", "max_target_positions", "max_seq_len", "max_sequence_length"),
    *("seq_length", "n_ctx"),
)

Specs = tuple[InputSpec, ...]


def candidates(model: Any, *, train: bool, length: int | None = None) -> Iterator[tuple[Specs, Mapping[str, int]]]:
    """Give inputs for `model`, in training with the labels its head takes; the likeliest first.

    Each with the length of its text, where it has one: that is the dimension `seq`, of the `length` asked for if any.
    """
    names = frozenset(inspect.signature(model.forward).parameters)
    for tokens in (length,) if length is not None else _lengths(model.config):
        main = _main_inputs(model, names)
        dimensions = {SEQUENCE: tokens} if any(spec.dimensions for spec in main) else {}
        decoder = _text(model.config, "decoder_input_ids", TRANSCRIPT)
        if train:
            for labels in _labels(model, names, main, tokens):
                yield (*main, *labels), dimensions
        yield main, dimensions
        if "decoder_input_ids" in names:
            yield (*main, decoder), dimensions


def _lengths(config: Any) -> Iterator[int]:
    """Sequence lengths to try: the most the config allows up to `LONGEST`, then less."""
    text = config.get_text_config()
    longest = next(
        (value for name in _POSITIONS if isinstance(value := getattr(text, name, None), int)), DEFAULT_LENGTH
    )
    length = min(longest, LONGEST) if longest > 1 else DEFAULT_LENGTH
    # Tables of RoBERTa's kind have two rows that no position uses: 514 stands for 512.
    if length > 128:
        length -= length % 128
    yield length
    yield from (shorter for shorter in (512, 128, 32, 8) if shorter < length)


def _main_inputs(model: Any, names: frozenset[str]) -> Specs:
    config, main = model.config, model.main_input_name
    specs = []
    if "pixel_values" in names:
        specs.append(_pixels(model))
    if main == "input_features" and main in names:
        mels = getattr(config, "num_mel_bins", None) or getattr(config, "input_feat_per_channel", None) or 80
        frames = 2 * config.max_source_positions if hasattr(config, "max_source_positions") else FRAMES
        shape = (BATCH, mels, frames) if config.model_type == "whisper" else (BATCH, frames, mels)
        specs.append(InputSpec(main, shape))
    if main == "input_values" and main in names:
        specs.append(InputSpec(main, (BATCH, SAMPLES)))
    if "input_ids" in names and (main == "input_ids" or specs):
        text = _text(config, "input_ids", SEQUENCE)
        if "MultipleChoice" in type(model).__name__:
            text = InputSpec("input_ids", (BATCH, CHOICES, SEQUENCE), "int64", high=text.high)
        specs.append(text)
    return tuple(specs)


def _labels(model: Any, names: frozenset[str], main: Specs, length: int) -> Iterator[Specs]:
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
    vocabulary = _vocabulary(config)
    if tokens is not None:
        high = num_labels if "TokenClassification" in kind else vocabulary
        labels = InputSpec("labels", tokens.shape, "int64", high=high)
        if "next_sentence_label" in names:
            yield (labels, InputSpec("next_sentence_label", (BATCH,), "int64", high=2))
        yield (labels,)
    else:
        yield (InputSpec("labels", (BATCH, TRANSCRIPT), "int64", low=1, high=vocabulary),)
    yield (InputSpec("labels", (BATCH,), "int64", high=num_labels),)


def _pixels(model: Any) -> InputSpec:
    config = getattr(model.config, "vision_config", None) or model.config
    size = getattr(config, "image_size", None) or DEFAULT_IMAGE_SIZE
    height, width = size if isinstance(size, tuple | list) else (size, size)
    channels = getattr(config, "num_channels", None) or 3
    if "num_frames" in vars(config):
        return InputSpec("pixel_values", (BATCH, config.num_frames, channels, height, width))
    if "Detection" in type(model).__name__ and not hasattr(config, "image_size"):
        height, width = 800, 800
    return InputSpec("pixel_values", (BATCH, channels, height, width))


def _text(config: Any, name: str, length: int | str) -> InputSpec:
    return InputSpec(name, (BATCH, length), "int64", high=_vocabulary(config))


def _vocabulary(config: Any) -> int:
    text = config.get_text_config()
    return int(getattr(text, "vocab_size", None) or 1000)
