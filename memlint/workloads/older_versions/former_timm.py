"""Models of timm under names that versions before 1.0 had, and that the installed one does not know."""

import importlib
from types import ModuleType
from typing import Any

_FORMER = (("vit_deit_", "deit_"), ("_in22k", ""), ("_in21k", ""))
"""Parts of former names, and what stands for them: a DeiT was called a ViT; data sets are tags of weights now."""


def present_name(name: str) -> str:
    """Return the name of the model that was called so; empty if there is none."""
    models = importlib.import_module("timm.models")
    names = (name.replace(before, now) for before, now in _FORMER if before in name)
    return next(filter(models.is_model, names), "")


def with_former_model(name: str, module: ModuleType) -> None:
    """Let timm make the model under its former name."""
    models: Any = importlib.import_module(f"{module.__name__}.models")
    make = models.model_entrypoint(present_name(name))

    def model(*args: Any, **kwargs: Any) -> Any:
        return make(*args, **kwargs)

    model.__name__, model.__module__ = name, make.__module__
    models.register_model(model)
