"""Configs of well-known models on the Hugging Face Hub, which does not have to be asked for them.

Each is what the model's own config.json says where that differs from the defaults of the class in transformers, as far
as sizes depend on it; known_configs.json has them. tests/script/test_pretrained.py holds each against the number of
parameters that its page states.
"""

import functools
import json
import re
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
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


@functools.cache
def _documented() -> dict[str, str]:
    """Classes whose defaults are like the config of a model, by its name, as transformers documents them."""
    spec = find_spec("transformers")
    folders = [] if spec is None else [Path(folder) for folder in spec.submodule_search_locations or ()]
    found: dict[str, str] = {}
    for path in (path for folder in folders for path in sorted(folder.glob("models/*/configuration_*.py"))):
        for pattern in _DOCUMENTED:
            for match in pattern.finditer(path.read_text("utf-8", errors="replace")):
                name, kind = match["name"].lower(), match["kind"]
                found[name] = min(found.get(name, kind), kind, key=len)  # its parts have longer names
    return found


_DOCUMENTED = (
    re.compile(
        r"@auto_docstring\(checkpoint=\"(?P<name>[\w.-]+/[\w.-]+)\"[^\n]*\n(?:@\w+\n)*class (?P<kind>\w+Config)\("
    ),
    re.compile(
        r"^class (?P<kind>\w+Config)\([^\n]*\n(?:(?!^class ).*\n){0,16}?"
        r".*\[[^\]\n]+\]\(https://huggingface.co/(?P<name>[\w.-]+/[\w.-]+)\)",
        re.MULTILINE,
    ),
)
"""How transformers names a model whose config a class is like: since version 5, and before."""


def documented_config(name: str) -> str:
    """Class of the config whose defaults are like those of the model `name`, as transformers documents; else empty."""
    return _documented().get(name.lower(), "")


def known_config(name: str, folder: str = "", *, documented: bool = True) -> Config | None:
    """Class and arguments of the config of the model `name`, with or without its owner, in `folder` of its repository.

    With `documented` those of `documented_config` count, too. None if it is not known.
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
    known = next((_BY_BASE[each] for each in names if each in _BY_BASE), None)
    kind = documented_config(name) if known is None and documented and not folder else ""
    return (kind, {}) if kind else known
