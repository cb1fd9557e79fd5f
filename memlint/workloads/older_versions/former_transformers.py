"""Models and configs written for transformers 4: the settings that each config had, and lists of tied weights.

Source: `PretrainedConfig` of transformers 4.46, and what `PreTrainedModel` of version 5 says of tied weights.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import ModuleType
from typing import Any

FORMER_SETTINGS: Mapping[str, Any] = {
    **dict.fromkeys(
        (
            *("pad_token_id", "bos_token_id", "eos_token_id", "sep_token_id", "decoder_start_token_id"),
            *("cross_attention_hidden_size", "prefix", "task_specific_params", "finetuning_task"),
        )
    ),
    **dict.fromkeys(
        ("is_decoder", "add_cross_attention", "tie_encoder_decoder", "torchscript", "use_bfloat16", "tf_legacy_loss"),
        False,
    ),
    "tie_word_embeddings": True,
    "pruned_heads": {},
}
"""Settings of every config by name, with their values where nothing else was said."""


def put_former_settings(config: type) -> None:
    """Give the class of all configs the settings that it lacks."""
    for name in (each for each in FORMER_SETTINGS if not hasattr(config, each)):
        setattr(config, name, FORMER_SETTINGS[name])


def with_listed_tied_weights(name: str, module: ModuleType) -> None:
    """Let models of the class `name` list their tied weights: each is tied to the embedding of the inputs."""
    kind: Any = getattr(module, name)
    expand = kind.get_expanded_tied_weights_keys

    @functools.wraps(expand)
    def get_expanded_tied_weights_keys(self: Any, *args: Any, **kwargs: Any) -> Any:
        listed = self._tied_weights_keys
        if isinstance(listed, list | tuple | set):
            source = next((path for path, each in self.named_modules() if each is self.get_input_embeddings()), "")
            weights = dict(self.named_parameters(remove_duplicate=False))
            shape = getattr(weights.get(f"{source}.weight"), "shape", None)
            alike = [key for key in listed if key in weights and weights[key].shape == shape]
            self._tied_weights_keys = {key: f"{source}.weight" for key in alike if key != f"{source}.weight"}
        return expand(self, *args, **kwargs)

    kind.get_expanded_tied_weights_keys = get_expanded_tied_weights_keys
