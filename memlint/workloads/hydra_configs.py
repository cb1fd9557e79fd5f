"""Configs as hydra and OmegaConf, where they are installed, compose, resolve and instantiate them."""

from __future__ import annotations

import ast
import builtins
import importlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from warnings import catch_warnings

from memlint.base.errors import MemlintError, WorkloadError
from memlint.source.calls import called
from memlint.source.project_files import Composed, ProjectFiles
from memlint.source.scopes import scopes
from memlint.source.scripts import training_at_import
from memlint.source.text import Source
from memlint.source.values import Configured
from memlint.workloads.loading import load_file
from memlint.workloads.missing_modules import remedy
from memlint.workloads.user_errors import describe

_REGISTERS = ("register_new_resolver", "register_resolver")
_OF_HYDRA = (
    *("hydra/job_logging=default", "hydra/hydra_logging=default"),
    *("hydra/launcher=basic", "hydra/sweeper=basic"),
)
"""Choices that need no plugin of hydra's, none of which changes a model."""
_MOST_COMPOSED = 2
"""Number of configs that hydra composes: it takes half a second for each."""


class HydraConfigs:
    """Composes the configs of one project; its own resolvers are registered with the first."""

    def __init__(self, root: Path, near: Path) -> None:
        self.files = ProjectFiles(root, near, self.composed)
        self._is_ready, self._num_composed = False, 0

    def composed(self, path: Path, primary: tuple[Path, str] | None) -> Composed | None:
        """Return what hydra makes of a config, or of the `primary` one with a choice; None where nothing is to be made.

        None as well if hydra is not installed, or if it refuses the config: the values are as they are written then.
        """
        if path.suffix == ".json" or (primary is None and "${" not in self.files.text(path)):
            return None
        try:
            from omegaconf import OmegaConf  # noqa: PLC0415 -- it may be missing
        except ImportError:
            return None
        self._register()
        composed = None
        if primary is not None and self._num_composed < _MOST_COMPOSED:
            self._num_composed += 1
            with suppress(Exception), catch_warnings(action="ignore"):  # whatever a resolver of the project raises
                composed = _composed_by_hydra(*primary)
        if composed is None and "${" in self.files.text(path):
            with suppress(Exception):
                composed = OmegaConf.load(path), ()
        values = None if composed is None else _plain(composed[0])
        return Composed(values, (path, *composed[1])) if composed is not None and isinstance(values, Mapping) else None

    def _register(self) -> None:
        """Register the resolvers that the project's code registers."""
        if self._is_ready:
            return
        self._is_ready = True
        from omegaconf import OmegaConf  # noqa: PLC0415 -- the caller has found it

        for source in self.files.sources(_REGISTERS):
            for call in (each for scope in scopes(source) for each in scope.calls if called(each) in _REGISTERS):
                with suppress(Exception), catch_warnings(action="ignore"):  # its interpolations stay unresolved
                    name, function = (_evaluated(each, source) for each in call.args[:2])
                    OmegaConf.register_new_resolver(name, function, replace=True)


def _composed_by_hydra(primary: Path, choice: str) -> tuple[Any, tuple[Path, ...]]:
    """Compose the config with the choice that a command line would have, as a script does."""
    from hydra import compose, initialize_config_dir  # noqa: PLC0415 -- it may be missing
    from hydra.core.global_hydra import GlobalHydra  # noqa: PLC0415
    from omegaconf import open_dict  # noqa: PLC0415

    GlobalHydra.instance().clear()
    with initialize_config_dir(str(primary.parent), version_base=None):
        config = compose(primary.stem, [*_OF_HYDRA, *([choice] if choice else [])], return_hydra_config=True)
    chosen = config.hydra.runtime.choices
    files = [(primary.parent / str(group) / str(name)).with_suffix(".yaml") for group, name in chosen.items()]
    with open_dict(config):
        del config["hydra"]
    return config, (primary, *(each for each in files if each.is_file()))


def _plain(node: Any) -> object:
    """Return the values of a config, interpolations resolved; one that cannot be stays as it is written."""
    from omegaconf import DictConfig, ListConfig, OmegaConf  # noqa: PLC0415 -- the caller has found it

    keys = node.keys() if isinstance(node, DictConfig) else range(len(node)) if isinstance(node, ListConfig) else ()
    values = {}
    for key in keys:
        try:
            values[key] = _plain(node[key])
        except Exception:  # OmegaConf's, or whatever a resolver raises
            written: Any = OmegaConf.to_container(node, resolve=False)
            values[key] = written[key]
    if isinstance(node, ListConfig):
        return [*values.values()]
    return values if isinstance(node, DictConfig) else node


def _evaluated(node: ast.expr, source: Source) -> Any:
    """Evaluate an expression with the names that its file imports or defines."""
    namespace = dict(_names(node, source))
    return eval(compile(ast.Expression(node), source.path, "eval"), namespace)


def _names(node: ast.expr, source: Source) -> Iterator[tuple[str, Any]]:
    for each in ast.walk(node):
        if not isinstance(each, ast.Name):
            continue
        if (meaning := source.imports.get(each.id)) is not None and not meaning.startswith("."):
            module, _, last = meaning.rpartition(".")
            yield each.id, getattr(importlib.import_module(module), last) if module else importlib.import_module(last)
        elif not hasattr(builtins, each.id) and source.path.endswith(".py") and training_at_import(source) is None:
            with suppress(MemlintError, AttributeError):
                yield each.id, getattr(load_file(Path(source.path)), each.id)


def instantiated(value: Configured) -> object:
    """Return what hydra makes of a value. Raises WorkloadError if it cannot, and says what to install."""
    place = Path(value.path).name
    try:
        from hydra.utils import instantiate  # noqa: PLC0415 -- it may be missing
        from omegaconf import OmegaConf  # noqa: PLC0415
    except ImportError as error:
        raise WorkloadError(f"{place} is a config of hydra, which is not installed", remedy("hydra", "")) from error
    except Exception as error:  # with another version of its parser than it asks for
        raise WorkloadError(f"{place} is a config of hydra, which cannot be imported: {describe(error)}") from error
    try:
        config = OmegaConf.create({"value": value.value})
        return instantiate(config).value if value.is_recursive else config.value
    except Exception as error:
        cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
        raise WorkloadError(f"hydra cannot make what {place} says: {describe(cause)}") from error
