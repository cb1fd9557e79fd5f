"""Configs of hydra's plugins that are not installed: logs with colours, launchers of jobs, searches of parameters.

A config that chooses one cannot be composed without it, and nothing in it changes a model. Source: the pages of the
plugins in hydra's documentation, version 1.3.
"""

from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution
from types import ModuleType
from typing import Any

from memlint.accelerator import state
from memlint.base.after_import import after_import

_LINE = {"format": "[%(asctime)s][%(name)s][%(levelname)s] - %(message)s"}
_FILE = "${hydra.runtime.output_dir}/${hydra.job.name}.log"
_CONSOLE = {"class": "logging.StreamHandler", "formatter": "simple", "stream": "ext://sys.stdout"}
_HYDRA_LOGS = {
    "version": 1,
    "formatters": {"simple": _LINE, "colorlog": _LINE},
    "handlers": {"console": _CONSOLE},
    "root": {"level": "INFO", "handlers": ["console"]},
    "disable_existing_loggers": False,
}
"""Logs of hydra itself, which begin before there is a folder for output."""
_HANDLER = {"class": "logging.FileHandler", "formatter": "simple", "filename": _FILE, "delay": True}
_JOB_LOGS = {**_HYDRA_LOGS, "handlers": {"console": _CONSOLE, "file": _HANDLER}}
_LAUNCHER = {"_target_": "hydra._internal.core_plugins.basic_launcher.BasicLauncher"}
_SWEEPER = {"_target_": "hydra._internal.core_plugins.basic_sweeper.BasicSweeper", "max_batch_size": None}
_GROUPS = {"job_logging": _JOB_LOGS, "hydra_logging": _HYDRA_LOGS, "launcher": _LAUNCHER, "sweeper": _SWEEPER}
"""Configs of hydra's own, by group."""
_PLUGINS = {
    "job_logging/colorlog": "hydra-colorlog",
    "hydra_logging/colorlog": "hydra-colorlog",
    "launcher/submitit_slurm": "hydra-submitit-launcher",
    "launcher/submitit_local": "hydra-submitit-launcher",
    "launcher/joblib": "hydra-joblib-launcher",
    "launcher/ray": "hydra-ray-launcher",
    "sweeper/optuna": "hydra-optuna-sweeper",
    "sweeper/ax": "hydra-ax-sweeper",
}
"""The plugin of each config."""


def stand_in_for_plugins() -> None:
    """Let configs that choose a plugin which is not installed be composed with hydra's own in its place."""
    after_import("hydra.core.config_store", _store)


def _store(module: ModuleType) -> None:
    missing = {}
    for config, plugin in _PLUGINS.items():
        if not _is_installed(plugin):
            group, _, name = config.partition("/")
            module.ConfigStore.instance().store(group=f"hydra/{group}", name=name, node=_GROUPS[group], provider=plugin)
            missing[f"hydra/{config}.yaml"] = plugin
    load = module.ConfigStore.load

    def loaded(store: Any, config_path: str) -> Any:
        if config_path in missing:
            state.assume(f"{missing[config_path]} is not installed: hydra's own is used in its place")
        return load(store, config_path)

    module.ConfigStore.load = loaded


def _is_installed(plugin: str) -> bool:
    with suppress(PackageNotFoundError):
        return distribution(plugin) is not None
    return False
