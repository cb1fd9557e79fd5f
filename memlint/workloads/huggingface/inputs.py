"""Inputs of Hugging Face models, by modality and head."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple

from memlint.base.signatures import signature_of
from memlint.targets.workload import BATCH, SEQUENCE, InputSpec
from memlint.workloads.huggingface import features, processors
from memlint.workloads.huggingface.by_name import required_besides
from memlint.workloads.huggingface.configs import image_size, main_input, number, without_adapter
from memlint.workloads.huggingface.labels import labels
from memlint.workloads.huggingface.processors import Prepared
from memlint.workloads.huggingface.texts import CHOICES, Runs, kinds_of_tokens, length_of_transcript, lengths, text
from memlint.workloads.model_sizes import DEFAULT_IMAGE_SIZE

SAMPLES = 160_000
"""Samples of a speech recording: ten seconds at 16 kHz."""
FRAMES = 3000
"""Frames of a spectrogram: thirty seconds at 100 frames a second."""

_DETECTED, _DETECTED_AT_ONCE = 800, 640
"""Sides of images for detection: the shorter side in DETR, and the training size of real-time detectors."""
_MELS = ("num_mel_bins", "input_feat_per_channel", "input_dim", "feature_size")

_MAKERS: Mapping[str, tuple[str, Callable[..., Prepared | None]]] = {
    "image": ("pixel_values", processors.images),
    "video": ("pixel_values_videos", processors.films),
    "audio": ("input_features", processors.recordings),
}
_RENAMED = {
    "pixel_values": ("hidden_states", "pixel_values_images", "image_pixel_values", "flattened_patches"),
    "image_grid_thw": ("grid_thw",),
    "image_position_ids": ("pixel_position_ids",),
    "image_merge_sizes": ("merge_sizes",),
    "input_features": ("audio_input_features", "input_values"),
    "attention_mask": ("feature_attention_mask", "input_features_mask", "audio_attention_mask"),
    "padding_mask": ("input_features_mask",),
}
"""Processors' names of inputs, and other names for them in models."""

Specs = tuple[InputSpec, ...]


class Candidate(NamedTuple):
    """Inputs to try."""

    specs: Specs
    dimensions: Mapping[str, int]
    """The length of its text, if it has one."""
    notes: tuple[str, ...] = ()
    """Descriptions of the data that the inputs were made from."""


class _Media(NamedTuple):
    """All inputs besides the text, and the tokens with which a text begins for them."""

    specs: Specs
    runs: Runs = ()
    notes: tuple[str, ...] = ()


def candidates(model: Any, *, train: bool, length: int | None = None) -> Iterator[Candidate]:
    """Yield inputs for `model`, in training with the labels for its head; the likeliest first.

    Each has the length of its text, if any: that is the dimension `seq`, equal to `length` if given.
    """
    model = without_adapter(model)
    names = frozenset(signature_of(model.forward).parameters)
    seen = set()
    for media in _media(model, names):
        room = media.runs or _of_embedded_image(model, names, media)
        for tokens in (length,) if length is not None else lengths(model.config, room):
            own = (*media.specs, *_texts(model, names, media))
            own += required_besides(model, [spec.name for spec in own])
            dimensions = {SEQUENCE: tokens} if any(spec.dimensions for spec in own) else {}
            for main in (own, *_of_codebooks(model, names, own)):
                if (main, tokens) in seen or not main:
                    continue
                seen.add((main, tokens))
                if train:
                    for expected in labels(model, names, main, tokens):
                        yield Candidate((*main, *expected), dimensions, media.notes)
                yield Candidate(main, dimensions, media.notes)
                if "decoder_input_ids" in names:
                    decoder = text(model.config, "decoder_input_ids", length_of_transcript(model.config))
                    yield Candidate((*main, decoder), dimensions, media.notes)
            if not dimensions:
                break


def is_multimodal(model: Any) -> bool:
    """Return True if it accepts images, videos or recordings: other inputs could fit only by chance."""
    names = frozenset(signature_of(model.forward).parameters)
    return any(_takes(model, names, kind) for kind in features.KINDS) and "input_ids" in names


def _media(model: Any, names: frozenset[str]) -> Iterator[_Media]:
    """Yield images, videos and recordings for `model`, made by processors and from the config; finally none."""
    kinds = [kind for kind in features.KINDS if _takes(model, names, kind)]
    if {"image", "video"} <= set(kinds):
        kinds.remove("video")
    configured = _by_config(model, names)
    stand_for_tokens = any(_stands(model, kind) is not None for kind in kinds)
    prepared = [made for kind in kinds if (made := _prepared(model, names, kind)) is not None]
    whole = [_Media(*(tuple(chain.from_iterable(each)) for each in zip(*prepared, strict=True)))] if prepared else []
    by_config = [_with_runs(model, configured, kinds)] if configured or not kinds else []
    more = any(len(each.specs) > 1 for each in prepared) or any("audio" in kind for kind in kinds)
    yield from (*whole, *by_config) if stand_for_tokens or more else (*by_config, *whole)
    yield from prepared if len(prepared) > 1 else ()
    if configured and len(configured[0].shape) == 5:  # the tower of a video model gets its images one by one
        _, frames, *image = configured[0].shape
        yield _Media((replace(configured[0], shape=(f"{frames}*{BATCH}", *image)), *configured[1:]))
    for spec, *others in (media.specs for media in (*whole, *by_config) if media.specs):
        if len(spec.shape) == 4:  # several images of each text, or all patches in one row
            for shape in ((spec.shape[0], 1, *spec.shape[1:]), (1, *spec.shape)):
                yield _with_runs(model, (replace(spec, shape=shape), *others), kinds)
    size = image_size(model.config) if configured and len(configured[0].shape) == 4 else None
    if size is not None and configured[0].shape[2:] != size:
        yield _Media((replace(configured[0], shape=(*configured[0].shape[:2], *size)),))
    if configured and configured[0].shape[2:] == (_DETECTED, _DETECTED):
        yield _Media((replace(configured[0], shape=(*configured[0].shape[:2], _DETECTED_AT_ONCE, _DETECTED_AT_ONCE)),))
    if "image" in kinds and (own := _prepared(model, names, "image", sized=False)) is not None:
        yield own
    if "input_ids" in names and kinds:
        yield _Media(())


def _stands(model: Any, kind: str) -> int | None:
    return features.placeholder(features.config_of_placeholders(model.config, kind), kind)


def _takes(model: Any, names: frozenset[str], kind: str) -> bool:
    name, _ = _MAKERS[kind]
    if kind == "audio" and main_input(model) in {"input_values", "input_features"}:
        return True
    return any(each in names for each in (name, *_RENAMED.get(name, ()))) and (
        name in names or name != "pixel_values" or "grid_thw" in names or "hidden_states" not in names
    )


def _prepared(model: Any, names: frozenset[str], kind: str, **options: bool) -> _Media | None:
    """Return the output of the processor of a kind, under the model's own parameter names."""
    if kind == "audio":
        options["masked"] = not names.isdisjoint(_RENAMED["attention_mask"])
    made = _MAKERS[kind][1](model.config, **options)
    if made is None:
        return None
    specs = []
    lacks_features = "input_features" in names and all(spec.name != "input_features" for spec in made.specs)
    for spec in made.specs:
        own = (spec.name, *_RENAMED.get(spec.name, ()))
        own = tuple(name for name in own if not (lacks_features and name == "input_features_mask"))
        if spec.name.endswith("mask") and main_input(model) == "input_ids" and spec.name == "attention_mask":
            own = own[1:]
        name = next((each for each in own if each in names), None)
        if name is not None:
            specs.append(replace(spec, name=name))
    if not any(spec.dtype == "float32" for spec in specs):
        return None
    left_out = "pixel_values_videos" if kind == "image" and "pixel_values_videos" in names else None
    notes = (f"{', '.join(spec.name for spec in specs)}: {made.text}", *([f"{left_out} left out"] if left_out else ()))
    return _with_runs(model, _Media(tuple(specs), notes=notes), [kind])


def _with_runs(model: Any, media: _Media | Specs, kinds: list[str]) -> _Media:
    media = media if isinstance(media, _Media) else _Media(media)
    runs: Runs = ()
    for kind in kinds:
        with suppress(Exception):  # the trial of the whole model reports the error
            runs += features.placeholders(model, kind, media.specs)
    return media._replace(runs=runs)


def _by_config(model: Any, names: frozenset[str]) -> Specs:
    """Return images and recordings of the sizes that the config states."""
    config, main = model.config, main_input(model)
    specs = []
    if "pixel_values" in names:
        specs.append(_pixels(model))
    elif "pixel_values_videos" in names:
        height, width = image_size(config) or (DEFAULT_IMAGE_SIZE, DEFAULT_IMAGE_SIZE)
        frames = number(config, "num_frames") or processors.FRAMES
        specs.append(InputSpec("pixel_values_videos", (BATCH, frames, 3, height, width)))
    if main == "input_features" and main in names:
        mels = next((value for name in _MELS if (value := number(config, name)) is not None), 80)
        frames = 2 * config.max_source_positions if hasattr(config, "max_source_positions") else FRAMES
        shape = (BATCH, mels, frames) if config.model_type == "whisper" else (BATCH, frames, mels)
        specs.append(InputSpec(main, shape))
    if main == "input_values" and main in names:
        specs.append(InputSpec(main, (BATCH, SAMPLES)))
    return tuple(specs)


def _texts(model: Any, names: frozenset[str], media: _Media) -> Iterator[InputSpec]:
    main = main_input(model)
    if main == "inputs" in names and "vocab_size" in vars(model.config):  # Perceiver's name for everything
        yield text(model.config, main, SEQUENCE)
    if "input_ids" not in names or not (main == "input_ids" or main not in names or media.specs):
        return
    tokens = text(model.config, "input_ids", SEQUENCE, media.runs)
    if "MultipleChoice" in type(model).__name__:
        tokens = replace(tokens, shape=(BATCH, CHOICES, SEQUENCE))
    yield tokens
    if begin := _of_embedded_image(model, names, media):
        yield InputSpec("image_embeds_position_mask", (BATCH, SEQUENCE), "int64", high=1, runs=begin)
    if media.runs:
        tokens_of_kinds = (_stands(model, kind) for kind in features.KINDS)
        standing = frozenset(each for each in tokens_of_kinds if each is not None)
        yield from (
            kinds_of_tokens(name, media.runs, standing)
            for name in ("mm_token_type_ids", "token_type_ids")
            if name in names
        )


def _of_embedded_image(model: Any, names: frozenset[str], media: _Media) -> Runs:
    """Return the beginning of the mask that marks an image's position in a text; nothing for models without one."""
    count = number(model.config, "latent_query_num")
    is_marked = media.specs and "image_embeds_position_mask" in names and count is not None
    return ((0, 1), (1, count)) if is_marked and count is not None else ()


def _of_codebooks(model: Any, names: frozenset[str], specs: Specs) -> Iterator[Specs]:
    """Yield `specs` with a token of each codebook per position: next to the batch, last (with or without text), second.

    For models of speech and music, whose texts are codes.
    """
    number_of = "num_channels" if "num_codebooks" not in vars(model.config) else "num_codebooks"
    count = number(model.config, number_of) if names.isdisjoint({"pixel_values", "pixel_values_videos"}) else None
    tokens = next((spec for spec in specs if spec.name == "input_ids" and len(spec.shape) == 2), None)
    if count is None or tokens is None:
        return
    batch, length = tokens.shape
    for shape in (
        (f"{count}*{BATCH}", length),
        *((batch, length, n) for n in (count, count + 1)),
        (batch, count, length),
    ):
        yield tuple(replace(spec, shape=shape) if spec is tokens else spec for spec in specs)


def _pixels(model: Any) -> InputSpec:
    config = getattr(model.config, "vision_config", None) or model.config
    height, width = image_size(config) or (DEFAULT_IMAGE_SIZE, DEFAULT_IMAGE_SIZE)
    channels = getattr(config, "num_channels", None) or 3
    if "num_frames" in vars(config):
        return InputSpec("pixel_values", (BATCH, config.num_frames, channels, height, width))
    if "Detection" in type(model).__name__ and not hasattr(config, "image_size"):
        height, width = _DETECTED, _DETECTED
    return InputSpec("pixel_values", (BATCH, channels, height, width))
