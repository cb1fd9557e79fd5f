"""Configs of well-known models on the Hugging Face Hub, which does not have to be asked for them.

Each is what the model's own config.json says where that differs from the defaults of the class in transformers, as far
as sizes depend on it; known_configs.json has them. tests/script/test_pretrained.py holds each against the number of
parameters that its page states.
"""

import json
import re
from importlib import resources
from typing import Any

_TUNED = re.compile(r"-(?:instruct|chat|it)(?=-|$)|-base(?=-\d{4}$)")
"""Part of the name of a model that was tuned further, or not, and has the sizes of its base."""
Config = tuple[str, dict[str, Any]]
"""Class of a config, and what differs from its defaults."""


def _config(fields: dict[str, Any]) -> Config:
    return str(fields["class"]), {name: value for name, value in fields.items() if name != "class"}


def _of_diffusers(fields: dict[str, Any]) -> Config:
    kind, values = _config(fields)
    return kind, {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}


_DATA: dict[str, dict[str, Any]] = json.loads(
    resources.files(__package__).joinpath("known_configs.json").read_text("utf-8")
)
KNOWN_CONFIGS: dict[str, Config] = {name: _config(fields) for name, fields in _DATA["models"].items()}
"""Configs by the last part of the model's name, in lower case."""
STABLE_DIFFUSION: dict[str, Config] = {
    name: _of_diffusers(fields) for name, fields in _DATA["stable_diffusion"].items()
}
"""Configs of versions 1.4 and 1.5 by folder of the repository. With diffusers the class is that of the model."""
ARCHITECTURES: dict[str, str] = _DATA["architectures"]
"""The class of the model that their config.json names, by class of the config."""


def _base_of(name: str) -> str:
    """Return the name without what says that it was tuned, or brought into the form of transformers."""
    return _TUNED.sub("", name).removesuffix("-hf")


_BY_BASE: dict[str, Config] = {_base_of(name): config for name, config in KNOWN_CONFIGS.items()}


def known_config(name: str, folder: str = "") -> Config | None:
    """Class and arguments of the config of the model `name`, with or without its owner, in `folder` of its repository.

    None if it is not known.
    """
    last = name.rstrip("/").rsplit("/", 1)[-1].lower()
    if last in ("stable-diffusion-v1-4", "stable-diffusion-v1-5"):
        return STABLE_DIFFUSION.get(folder)
    if last in ("sd-vae-ft-ema", "sd-vae-ft-mse"):  # which have finetuned its decoder alone
        return STABLE_DIFFUSION["vae"]
    if last == "stable-diffusion-safety-checker":
        return STABLE_DIFFUSION["safety_checker"]
    base = _base_of(last)
    if last in KNOWN_CONFIGS:
        return KNOWN_CONFIGS[last]
    names = (base, last.removeprefix("meta-"), base.removeprefix("meta-"))
    return next((_BY_BASE[each] for each in names if each in _BY_BASE), None)
