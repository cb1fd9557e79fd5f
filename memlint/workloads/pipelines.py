"""Diffusion pipelines whose files are not on this machine, made of parts that are loaded like those of scripts."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from memlint.targets.known_configs import Config, known_config
from memlint.workloads.missing_checkpoints import Put
from memlint.workloads.notes import note
from memlint.workloads.stated_configs import stated_config

_INDEX = "model_index"
"""The file of a pipeline that names the library and the class of each part."""
_DTYPES = ("torch_dtype", "dtype")
_OWN = ("requires_safety_checker",)
"""Arguments of `from_pretrained` for the pipeline's constructor."""
_WITHOUT_FILES = frozenset(("feature_extractor",))
"""Parts whose settings are the defaults of their class."""


def replace_pipelines(module: ModuleType, put: Put) -> None:
    """Make `from_pretrained` of pipelines build those that are known by their name, or whose configs are stated."""
    load = vars(module.DiffusionPipeline)["from_pretrained"].__func__

    def from_pretrained(cls: Any, /, pretrained_model_name_or_path: Any, **kwargs: Any) -> Any:
        source = str(pretrained_model_name_or_path)
        try:
            return load(cls, source, **kwargs)
        except OSError as error:
            known = _stated(source) or known_config(source, _INDEX)
            if known is None:
                folder = "a folder with its model_index.json and the configs of its parts"
                hint = f"give the path of {folder} instead, or add --config-of {source}=FOLDER; no weights are needed"
                note(error, f"wants the pipeline {source!r}, which is not on this machine", hint)
                raise
        diffusers = importlib.import_module("diffusers")
        kind = getattr(diffusers, known[0]) if cls is module.DiffusionPipeline else cls
        own = {name: kwargs[name] for name in _OWN if name in kwargs}
        return kind(**{name: _part(source, name, value, kwargs) for name, value in known[1].items()}, **own)

    put(module.DiffusionPipeline, "from_pretrained", classmethod(from_pretrained))


def _stated(source: str) -> Config | None:
    """Return the class of a pipeline and its arguments, as the command line states them."""
    index = stated_config(f"{source}/{_INDEX}")
    if index is None:
        return None
    return str(index["_class_name"]), {name: value for name, value in index.items() if not name.startswith("_")}


def _part(source: str, name: str, value: Any, options: Mapping[str, Any]) -> Any:
    """Load a part, whose `value` is its library and its class, unless it was given; other values are settings."""
    if name in options:
        return options[name]
    if not isinstance(value, list | tuple):
        return value
    library, kind = value
    if library is None:
        return None
    inside = {"diffusers", "transformers"}
    owner: Any = importlib.import_module(library if library in inside else f"diffusers.pipelines.{library}")
    made = getattr(owner, kind)
    if name in _WITHOUT_FILES:
        return made()
    dtype = {each: options[each] for each in _DTYPES if each in options and hasattr(made, "forward")}
    return made.from_pretrained(source, subfolder=name, **dtype)
