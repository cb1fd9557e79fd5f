"""Hugging Face models built from a config alone. Nothing is downloaded."""

from __future__ import annotations

import copy
import difflib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from memlint.base.errors import WorkloadError
from memlint.workloads.loading import prepare_imports
from memlint.workloads.user_errors import reported

_HEADS = (
    *("MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING", "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING", "MODEL_FOR_MASKED_LM_MAPPING"),
    *("MODEL_FOR_CAUSAL_LM_MAPPING", "MODEL_FOR_CTC_MAPPING", "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING"),
    *("MODEL_FOR_ZERO_SHOT_IMAGE_CLASSIFICATION_MAPPING", "MODEL_FOR_OBJECT_DETECTION_MAPPING"),
    *("MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING", "MODEL_FOR_SEMANTIC_SEGMENTATION_MAPPING"),
    *("MODEL_FOR_AUDIO_CLASSIFICATION_MAPPING", "MODEL_FOR_VIDEO_CLASSIFICATION_MAPPING", "MODEL_MAPPING"),
)
"""Where a config without `architectures` looks for its model: the head it is trained with first."""


def is_config(value: object) -> bool:
    """Whether `value` is a Hugging Face config, or a class of them."""
    transformers = sys.modules.get("transformers")
    if transformers is None:
        return False
    kind = transformers.PreTrainedConfig
    return isinstance(value, kind) or (isinstance(value, type) and issubclass(value, kind))


def is_model(value: object) -> bool:
    """Whether `value` is a Hugging Face model."""
    transformers = sys.modules.get("transformers")
    return transformers is not None and isinstance(value, transformers.PreTrainedModel)


def config_from_json(path: Path) -> Any:
    """Config of a `config.json`. Raises WorkloadError where transformers is missing or does not know the model."""
    prepare_imports()
    try:
        import transformers  # noqa: PLC0415 - slow, and only needed here
    except ImportError as error:
        raise WorkloadError(f"{path} needs the transformers package", "Type: pip install transformers") from error
    with reported(f"{path} is not a config transformers knows", "Does its model_type need a newer transformers?"):
        return transformers.AutoConfig.from_pretrained(str(path), local_files_only=True, trust_remote_code=False)


def with_arguments(config: Any, arguments: Mapping[str, object]) -> Any:
    """A config, or one of a config class with its defaults, in which these attributes are changed.

    Raises WorkloadError for attributes it does not have.
    """
    with reported("the config has no defaults for everything"):
        plain = config() if isinstance(config, type) else config
    known = {*plain.to_dict(), *plain.attribute_map}
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


def model_from_config(config: Any) -> nn.Module:
    """Build the model of a config, or of a config class with its defaults, with random weights."""
    import transformers  # noqa: PLC0415 - slow, and only needed here

    config = with_arguments(config, {})
    with reported(f"the model of {type(config).__name__} cannot be imported"):
        kind = model_class(config, transformers)
    with reported(f"{kind.__name__} cannot be built from its config"):
        model: nn.Module = kind(config)
    return model


def model_class(config: Any, transformers: Any) -> Any:
    """Class for a config: by `architectures`, else the head it is usually trained with."""
    for name in getattr(config, "architectures", None) or ():
        if hasattr(transformers, name):
            return getattr(transformers, name)
    auto = transformers.models.auto.modeling_auto
    for mapping in _HEADS:
        classes = getattr(auto, mapping, {})
        if type(config) in classes:
            kind = classes[type(config)]
            return kind[0] if isinstance(kind, tuple) else kind
    raise WorkloadError(
        f"transformers has no model for {type(config).__name__}",
        "Name the class: a function that returns the model, as file.py::function.",
    )
