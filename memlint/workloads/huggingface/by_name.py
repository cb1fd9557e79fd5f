"""Inputs of a model's parts, and of models of other data, by the name of the parameter and the sizes in the config."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from memlint.base.signatures import signature_of
from memlint.targets.workload import BATCH, SEQUENCE, InputSpec
from memlint.workloads.huggingface.configs import image_size, main_input, number
from memlint.workloads.model_sizes import DEFAULT_IMAGE_SIZE, DEFAULT_LENGTH

_WIDTHS = ("hidden_size", "d_model", "n_embd", "embed_dim", "encoder_hidden_dim", "dim")
_OTHER_WIDTHS = ("encoder_hidden_size", "cross_attention_hidden_size", "cross_hidden_size", "kv_dim", "vision_dim")
_PATCHES = 256
"""Hidden states of an image, where one comes from another tower."""
_QUESTION = 32
"""Tokens of a question to a Q-Former."""
_STEPS = 20
"""Of a trajectory: the context of the Decision Transformer's paper."""
_FRAMES = 1000
"""Of a spectrogram: ten seconds at the usual hundred a second."""
_CODES = 100
"""Steps of a codec's code."""
_SOUND = 500
"""Features of a recording: ten seconds at fifty a second."""
_OPTIONS = 2
"""Questions, and answers to each."""
_CLASSES = 2
"""Names of classes, of each image in which they are to be found."""
_OF_TEXT = ("input_ids", "labels", "attention_mask", "decoder_input_ids", "position_ids", "inputs_embeds")
_DOCUMENTED = r"^\s*{} \(`?torch\.(\w*?)Tensor`? of shape `?\(([^`\n]*)\)`?"
_LENGTHS = ("sequence_length", "seq_len", "seq_length", "num_tokens", "encoder_sequence_length")
"""What docstrings call a size that no config says."""


def by_name(model: Any) -> tuple[InputSpec, ...]:
    """Inputs for what `forward` cannot do without, and for the main one."""
    config, parameters = model.config, signature_of(model.forward).parameters
    required = [
        name for name, each in parameters.items() if each.default is each.empty and each.kind is not each.VAR_KEYWORD
    ]
    main = [main_input(model)] if main_input(model) in parameters else []
    if "feature_lens" in parameters:  # frames of all recordings in one row
        shape = number(config, "num_mel_bins") or 128, f"{_FRAMES}*{BATCH}"
        return (InputSpec(main[0], shape), *_specs(model, {"feature_lens": None}))
    companions = [name for name in _COMPANIONS.get(main[0] if main else "", ()) if name in parameters]
    names = (*main, *required, *companions) or ("inputs_embeds",)
    return tuple(_specs(model, dict.fromkeys(name for name in names if name in parameters)))


def required_besides(model: Any, names: Iterable[str]) -> tuple[InputSpec, ...]:
    """Inputs that `forward` cannot do without, besides those of `names`."""
    parameters = signature_of(model.forward).parameters
    required = [name for name, each in parameters.items() if each.default is each.empty and name not in {*names}]
    return tuple(_specs(model, dict.fromkeys(required)))


def mentioned(
    model: Any, message: str, specs: tuple[InputSpec, ...], instead: tuple[str, ...] = ()
) -> InputSpec | None:
    """An optional input of `forward` that an error's message names and `specs` lack, and have nothing `instead` of."""
    absent = signature_of(model.forward).parameters.keys() - {spec.name for spec in specs} - {*instead}
    words = re.findall(r"\w+", message)
    length = SEQUENCE if any(SEQUENCE in spec.shape for spec in specs) else DEFAULT_LENGTH
    return next(_specs(model, dict.fromkeys(word for word in words if word in absent), length), None)


def _specs(model: Any, names: Mapping[str, None], length: int | str = DEFAULT_LENGTH) -> Iterator[InputSpec]:
    for name in names:
        if name in _MAKERS:
            yield InputSpec(name, *_MAKERS[name](model.config))
        elif (spec := _documented(model, name, length)) is not None:
            yield spec


def _documented(model: Any, name: str, length: int | str) -> InputSpec | None:
    """An input of the shape that the docstring of `forward` says, where the config says how large that is.

    None for texts and their labels, which are made elsewhere.
    """
    if name in _OF_TEXT:
        return None
    match = re.search(_DOCUMENTED.format(name), model.forward.__doc__ or "", re.MULTILINE)
    sizes = re.split(r",\s*", re.sub(r"\s*\(.*?\)", "", match[2]).rstrip(" ,")) if match is not None else []
    known = {"batch_size": BATCH, "batch": BATCH, **dict.fromkeys(_LENGTHS, length)}
    shape = [int(each) if each.isdigit() else known.get(each) or number(model.config, each) for each in sizes]
    if match is None or None in shape:
        return None
    is_mask, dtype = name.endswith("mask"), "int64" if match[1] in ("Long", "Int", "Bool") else "float32"
    if is_mask or name.endswith(("_id", "_ids", "_index", "_type")) or dtype == "int64":
        return InputSpec(name, tuple(filter(None, shape)), "int64", int(is_mask), 1 + is_mask)
    return InputSpec(name, tuple(filter(None, shape)))


def _width(config: Any, names: tuple[str, ...] = _WIDTHS) -> int:
    return _first(config, names) or 1


def _first(config: Any, names: tuple[str, ...]) -> int | None:
    return next((value for name in names if (value := number(config, name)) is not None), None)


def _vocabulary_of_qformer(config: Any) -> int:
    return int(getattr(getattr(config, "qformer_config", None), "vocab_size", 1000))


def _picture(config: Any) -> tuple[Any, ...]:
    return ((BATCH, 3, *(image_size(config) or (DEFAULT_IMAGE_SIZE, DEFAULT_IMAGE_SIZE))),)


def _half(config: Any) -> tuple[Any, ...]:
    """One of two pictures that the model puts together to one of the size in the config."""
    side = min(image_size(config) or (DEFAULT_IMAGE_SIZE,))
    return ((BATCH, 3, side, side),)


def _hidden(config: Any) -> tuple[Any, ...]:
    return ((BATCH, DEFAULT_LENGTH, _width(config, ("mel_dim", *_WIDTHS))),)


def _of_other_tower(config: Any) -> tuple[Any, ...]:
    return ((BATCH, _PATCHES, _width(config, (*_OTHER_WIDTHS, *_WIDTHS))),)


def _past(config: Any) -> tuple[Any, ...]:
    lags = max(getattr(config, "lags_sequence", None) or [0])
    length = (number(config, "context_length") or DEFAULT_LENGTH) + lags
    channels = number(config, "num_input_channels") or number(config, "input_size") or 1
    return ((BATCH, length, channels) if hasattr(config, "num_input_channels") or channels > 1 else (BATCH, length),)


def _time_features(length: Callable[[Any], int]) -> Callable[[Any], tuple[Any, ...]]:
    return lambda config: ((BATCH, length(config), number(config, "num_time_features") or 1),)


def _past_length(config: Any) -> int:
    return int(_past(config)[0][1])


def _future_length(config: Any) -> int:
    return number(config, "prediction_length") or 24


def _codes(config: Any) -> tuple[Any, ...]:
    num = next((n for name in ("num_quantizers", "num_codebooks", "n_codebooks") if (n := number(config, name))), 8)
    return (BATCH, num, _CODES), "int64", None, number(config, "codebook_size") or 1024


_MAKERS: Mapping[str, Callable[[Any], tuple[Any, ...]]] = {
    "hidden_states": _hidden,
    "qformer_input_ids": lambda config: ((BATCH, _QUESTION), "int64", None, _vocabulary_of_qformer(config)),
    "prompt_pixel_values": _half,
    "prompt_masks": _half,
    "state": lambda config: ((BATCH, number(config, "max_state_dim") or 32),),
    "spectrogram": lambda config: ((BATCH, DEFAULT_LENGTH, _first(config, ("model_in_dim", "num_mel_bins")) or 80),),
    "audio_mel": lambda config: ((BATCH, _FRAMES, number(config, "input_feat_size") or 128),),
    "audio_mel_mask": lambda _config: ((BATCH, _FRAMES), "bool", None, 1),
    "merge_sizes": lambda _config: ((BATCH,), "int64", 1, 2),
    "inputs_embeds": _hidden,
    "query_embeds": lambda config: ((BATCH, number(config, "num_query_tokens") or 32, _width(config)),),
    "encoder_hidden_states": _of_other_tower,
    "attention_mask": lambda _config: ((BATCH, DEFAULT_LENGTH), "int64", 1, 2),
    "past_values": _past,
    "past_values_padding": lambda config: (*_past(config), "int64", None, 1),
    "freq": lambda _config: ((BATCH, 1), "int64", None, 3),
    "past_observed_mask": lambda config: (*_past(config), "int64", 1, 2),
    "past_time_features": _time_features(_past_length),
    "future_values": lambda config: ((BATCH, _future_length(config)),),
    "future_time_features": _time_features(_future_length),
    "audio_codes": _codes,
    "bbox": lambda _config: ((BATCH, DEFAULT_LENGTH, 4), "int64", None, 1),
    "states": lambda config: ((BATCH, _STEPS, number(config, "state_dim") or 1),),
    "actions": lambda config: ((BATCH, _STEPS, number(config, "act_dim") or 1),),
    "rewards": lambda _config: ((BATCH, _STEPS, 1),),
    "returns_to_go": lambda _config: ((BATCH, _STEPS, 1),),
    "timesteps": lambda config: ((BATCH, _STEPS), "int64", None, number(config, "max_ep_len") or 1000),
    "condition_vector": lambda config: ((BATCH, _FRAMES, number(config, "mel_dim") or 80),),
    "reference_mel": lambda config: ((BATCH, _FRAMES, number(config, "mel_dim") or 80),),
    "speaker_embedding": lambda config: ((BATCH, DEFAULT_LENGTH, number(config, "enc_emb_dim") or 192),),
    "conditioning": lambda config: ((BATCH, number(config, "enc_emb_dim") or 192),),
    "quantized_code": lambda config: (
        (BATCH, DEFAULT_LENGTH // (number(config, "repeats") or 1)),
        *("int64", None, number(config, "num_embeds") or 1000),
    ),
    "code": lambda config: ((BATCH, _CODES), "int64", None, number(config, "num_embeds") or 1000),
    "time_step": lambda _config: ((BATCH,), "float32", 0.0, 1.0),
    "feature_lens": lambda _config: ((BATCH,), "int64", _FRAMES, _FRAMES + 1),
    "marks": lambda _config: ((BATCH, _OPTIONS), "int64", 1, DEFAULT_LENGTH),
    "num_options": lambda _config: ((BATCH, _OPTIONS), "int64", _OPTIONS, _OPTIONS + 1),
    "question_type_ids": lambda _config: ((BATCH, _OPTIONS), "int64", None, 1),
    "image_attention_mask": lambda _config: ((BATCH, SEQUENCE, 1), "int64", 1, 2),
    "input_features": lambda config: ((BATCH, _SOUND, number(config, "feature_projection_input_dim") or 80),),
    "pixel_attention_mask": lambda _config: ((BATCH, 1), "int64", 1, 2),
    "pixel_values_videos": lambda config: ((BATCH, number(config, "num_frames") or 8, *_picture(config)[0][1:]),),
    "classes_input_ids": lambda config: (
        (f"{_CLASSES}*{BATCH}", _QUESTION),
        "int64",
        None,
        number(config, "vocab_size") or 1000,
    ),
    "classes_attention_mask": lambda _config: ((f"{_CLASSES}*{BATCH}", _QUESTION), "int64", 1, 2),
    "tasks_input_ids": lambda config: ((BATCH, _QUESTION), "int64", None, number(config, "vocab_size") or 1000),
    "tasks_attention_mask": lambda _config: ((BATCH, _QUESTION), "int64", 1, 2),
    "classes_structure": lambda _config: ((BATCH,), "int64", _CLASSES, _CLASSES + 1),
    "visual_feats": lambda config: ((BATCH, 36, number(config, "visual_feat_dim") or 2048),),
    "visual_pos": lambda _config: ((BATCH, 36, 4), "float32", 0.0, 1.0),
}
"""By name: shape, dtype, low and high. An image is 36 regions for LXMERT, as in its paper."""

_COMPANIONS = {
    "past_values": ("past_time_features", "future_values", "future_time_features"),
    "states": ("actions", "rewards", "returns_to_go", "timesteps"),
}
"""What a model needs beside its main input although it does not say so."""
