"""Hugging Face configs, from a file or a class. Nothing is downloaded."""

from __future__ import annotations

import copy
import difflib
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from memlint.base.errors import WorkloadError
from memlint.workloads.config_parts import parts
from memlint.workloads.loading import prepare_imports
from memlint.workloads.user_errors import reported

_UNDECLARED = (
    "quantization_config",
    "head_dim",
    "position_buckets",
    "partial_rotary_factor",
    "norm_rel_ebd",
    "share_att_key",
    "num_labels",
)
"""Attributes that models read of configs whose classes do not declare them."""
NUMBERS_OF_LAYERS = re.compile(r"(n|num|encoder|decoder)_?([a-z]+_)*(layers?|blocks)|depth")
"""Names of numbers of layers that follow each other."""
FEW = 2
"""As many as there are alike in most models."""


def is_config(value: object) -> bool:
    """Return True if `value` is a Hugging Face config, or a class of them."""
    transformers = sys.modules.get("transformers")
    if transformers is None:
        return False
    kind = transformers.PretrainedConfig
    return isinstance(value, kind) or (isinstance(value, type) and issubclass(value, kind))


def is_model(value: object) -> bool:
    """Return True if `value` is a Hugging Face model, with or without a peft adapter."""
    transformers = sys.modules.get("transformers")
    return transformers is not None and isinstance(without_adapter(value), transformers.PreTrainedModel)


def without_adapter(value: Any) -> Any:
    """Return the model under a peft adapter, which accepts the same inputs; without adapter, `value` itself."""
    peft = sys.modules.get("peft")
    return value.get_base_model() if peft is not None and isinstance(value, peft.PeftModel) else value


def main_input(model: Any) -> str:
    """Return the name of a Hugging Face model's main input; the first one if there are several."""
    name = model.main_input_name
    return str(name if isinstance(name, str) else name[0])


def config_from_json(path: Path) -> Any:
    """Read the config of a `config.json`. Raises WorkloadError if transformers is missing or does not know it."""
    prepare_imports()
    try:
        import transformers  # noqa: PLC0415 - slow, and only needed here
    except ImportError as error:
        raise WorkloadError(f"{path} needs the transformers package", "Type: pip install transformers") from error
    with reported(f"{path} is not a config transformers knows", "Does its model_type need a newer transformers?"):
        return transformers.AutoConfig.from_pretrained(str(path), local_files_only=True, trust_remote_code=False)


def with_arguments(config: Any, arguments: Mapping[str, object]) -> Any:
    """Return a config, or one of a config class with its defaults, with these attributes changed.

    Raises WorkloadError for unknown attributes.
    """
    with reported("the config has no defaults for everything"):
        plain = config() if isinstance(config, type) else config
    known = {*plain.to_dict(), *plain.attribute_map, *_UNDECLARED}
    for name in arguments:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"Did you mean {close[0]}?" if close else "Correct `arguments` of the workload."
            raise WorkloadError(f"{type(plain).__name__} has no {name}", hint)
    with reported(f"{type(plain).__name__} does not take the workload's arguments"):
        if isinstance(config, type):
            return config(**arguments)
        changed = copy.deepcopy(plain)
        changed.update(dict(arguments))
    return changed


def few_layers(config: Any) -> dict[str, Any]:
    """Return arguments with which a config, and those within it, have `FEW` layers where they have more."""
    counts = {
        key: n for key, n in vars(config).items() if type(n) is int and n > FEW and NUMBERS_OF_LAYERS.fullmatch(key)
    }
    arguments: dict[str, Any] = dict.fromkeys(counts, FEW)
    for key, value in vars(config).items():
        if hasattr(value, "model_type"):
            if few := few_layers(value):
                arguments[key] = {**value.to_dict(), **few}
        elif isinstance(value, list) and len(value) in counts.values():
            arguments[key] = value[:FEW]
    return arguments


def number(config: Any, name: str) -> int | None:
    """Return a whole number that a config, or one of its parts, has under a name."""
    return next(
        (value for part in parts(config) if type(value := getattr(part, name, None)) is int and value > 0), None
    )


def image_size(config: Any) -> tuple[int, int] | None:
    """Return height and width of the images that a config is for; None if it accepts any."""
    for part in parts(config):
        size = getattr(part, "image_size", None) or getattr(part, "input_size", None)
        if isinstance(size, Mapping):
            size = (size.get("height"), size.get("width"))
        if isinstance(size, int) and size > 1:
            return size, size
        if isinstance(size, Sequence) and len(size) == 2 and all(isinstance(each, int) and each > 1 for each in size):
            return size[0], size[1]
    return None
