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
_QUANTIZED = re.compile(r"gptq|awq|bnb|gguf|fp8|fp4|\bint[348]|[348]-?bit|quant")
"""Part of the name of a model whose weights are packed, which the config of its base does not say."""
_SIZED = re.compile(r"[\d_-]")
"""A character without which a name is that of a family of models: bloom has no size."""
Config = tuple[str, dict[str, Any]]
"""Class of a config, and what differs from its defaults."""


def _config(fields: dict[str, Any]) -> Config:
    return str(fields["class"]), {name: value for name, value in fields.items() if name != "class"}


_DATA: dict[str, dict[str, Any]] = json.loads(
    resources.files(__package__).joinpath("known_configs.json").read_text("utf-8")
)
SAME: dict[str, str] = _DATA["same"]
"""Models by names of others that have their sizes."""
KNOWN_CONFIGS: dict[str, Config] = {name: _config(fields) for name, fields in _DATA["models"].items()}
"""Configs by the last part of the model's name, in lower case."""
KNOWN_CONFIGS |= {name: KNOWN_CONFIGS[like] for name, like in SAME.items() if like in KNOWN_CONFIGS}
ARCHITECTURES: dict[str, str] = _DATA["architectures"]
"""The class of the model that their config.json names, by class of the config."""


def _part(fields: dict[str, Any] | str) -> Config:
    """Return the config of a pipeline's part; of the model's class where diffusers has it, which takes no lists."""
    if isinstance(fields, str):  # another pipeline has the same
        name, _, folder = fields.partition("/")
        return _part(_DATA["pipelines"][name][folder])
    kind, values = _config(fields)
    if kind.endswith("Config"):
        return kind, values
    return kind, {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}


_PIPELINES: dict[str, dict[str, Config]] = {
    name: {folder: _part(fields) for folder, fields in parts.items()} for name, parts in _DATA["pipelines"].items()
}
_PIPELINES |= {name: _PIPELINES[like] for name, like in SAME.items() if like in _PIPELINES}
"""Configs by folder of the repository of a pipeline; what is in no folder has none."""


def _base_of(name: str) -> str:
    """Return the name without what says that it was tuned, or brought into the form of transformers."""
    return _TUNED.sub("", name).removesuffix("-hf").removeprefix("meta-")


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


def known_config(name: str, folder: str = "", *, exact: bool = False) -> Config | None:
    """Class and arguments of the config of the model `name`, with or without its owner, in `folder` of its repository.

    Without `exact` that of a model that `likeness` names counts, too. None if it is not known.
    """
    last = _last(name)
    if last in _PIPELINES:
        return _PIPELINES[last].get(folder)
    known = KNOWN_CONFIGS.get(last) or _BY_BASE.get(_base_of(last))
    if known is not None or exact or folder:
        return known
    if kind := documented_config(name):
        return kind, {}
    return _BY_BASE.get(_beginning(last))


def likeness(name: str) -> str:
    """Return in words which config `known_config` gives for a model that it does not know itself; else empty."""
    if known_config(name, exact=True) is not None:
        return ""
    if kind := documented_config(name):
        return f"the defaults of {kind} are taken, which transformers documents as like it"
    return f"that of {known} is taken, with which its name begins" if (known := _beginning(_last(name))) else ""


def _last(name: str) -> str:
    last = name.rstrip("/").rsplit("/", 1)[-1].lower()
    plain = last.replace("_", "-")  # as a folder with a copy of the model is called
    return plain if last not in _BY_BASE and plain in _BY_BASE else last


def _beginning(last: str) -> str:
    """Return the longest known name with which another begins, as bert-base-uncased-mine does; empty without one."""
    if _QUANTIZED.search(last):
        return ""
    base = _base_of(last)
    known = (each for each in _BY_BASE if _SIZED.search(each) and base.startswith((f"{each}-", f"{each}_")))
    return max(known, key=len, default="")
