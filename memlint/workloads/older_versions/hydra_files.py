"""hydra as before 1.0: `main` takes the path of a config, and `instantiate` a `class` and its `params`.

Source: "What's New" of hydra 1.0, and the page of 0.11 on its decorator.
"""

import functools
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

_SUFFIXES = (".yaml", ".yml")
_CLASSES = ("class", "cls")
"""Keys under which a config named a class."""


def with_paths_of_configs(_name: str, hydra: Any) -> None:
    """Let the package, which is there in a later version, take both."""
    main = hydra.main

    @functools.wraps(main)
    def of_file(config_path: str | None = None, config_name: str | None = None, **named: Any) -> Callable[..., Any]:
        path = Path(config_path or "")
        if path.suffix in _SUFFIXES:
            config_path, config_name = str(path.parent), path.stem
        decorator: Callable[..., Any] = main(config_path=config_path, config_name=config_name, **named)
        return decorator

    hydra.main = of_file
    utils: Any = importlib.import_module("hydra.utils")
    utils.instantiate = _of_classes(utils.instantiate)


def _of_classes(instantiate: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(instantiate)
    def of_class(config: Any, *arguments: Any, **named: Any) -> Any:
        kind = next((config[key] for key in _CLASSES if key in config), None)
        if kind is None or "_target_" in config:
            return instantiate(config, *arguments, **named)
        omegaconf = importlib.import_module("omegaconf").OmegaConf
        given = config.get("params") or {}  # whose values may be elsewhere in the config that it is a part of
        given = omegaconf.to_container(given, resolve=True) if omegaconf.is_config(given) else given
        return instantiate({"_target_": kind, **given}, *arguments, _recursive_=False, **named)

    return of_class
