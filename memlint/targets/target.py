"""The targets that a user may type after `memlint check`: a file, a name in it, a Hugging Face config."""

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from memlint.base.errors import TargetError
from memlint.source.typed_calls import literal_call
from memlint.source.values import Unknown
from memlint.targets.known_configs import known_config

SEPARATOR = "::"


class Target(NamedTuple):
    """A parsed target. Exactly one of `path` and `module` is set."""

    text: str
    path: Path | None
    """Absolute path of the file."""
    module: str
    """Name of an installed module, as in `transformers::LlamaConfig`."""
    qualname: str
    """The name after `::`, may be dotted; empty for the whole file."""
    arguments: Mapping[str, object] = {}
    """Arguments of a target that is a call, as in `unet.py::UNet(3, n_classes=2)`; positional ones have digits as
    names.
    """

    @property
    def is_config(self) -> bool:
        """True if it is a Hugging Face `config.json`."""
        return self.path is not None and self.path.suffix == ".json"


def parse_target(text: str, base: Path) -> Target:
    """Parse `text`; paths are relative to `base`.

    A folder with a `config.json` stands for that file, and the name of a well-known model on the Hugging Face Hub for
    its config, unless there is a file of that name. Raises TargetError for text that is neither a file nor the name
    of a module.
    """
    place, _, qualname = text.partition(SEPARATOR)
    qualname, arguments = _called(qualname, text)
    if not place.endswith((".py", ".json")) and qualname and all(part.isidentifier() for part in place.split(".")):
        return Target(text, None, place, qualname, arguments)
    path = (base / os.path.expanduser(place)).resolve()  # noqa: PTH111 -- a file may be called ~x.py
    if path.is_dir() and (path / "config.json").is_file():
        path /= "config.json"
    hint = "Write path.py, path.py::Name or the path of a config.json."
    if is_known_model(text):
        kind, values = known_config(text, exact=True) or ("", {})
        return Target(text, None, "transformers", kind, values)
    if not path.exists():
        raise TargetError(f"{place} does not exist", hint)
    if path.suffix == ".ipynb":
        hint = f"Type memlint check {shlex.quote(path.name)}, which runs its cells in order."
        raise TargetError(f"{path.name} is a notebook, not a Python file", hint)
    if path.is_dir() or path.suffix not in {".py", ".json"}:
        raise TargetError(f"{place} is neither a Python file nor a Hugging Face config.json", hint)
    return Target(text, path, "", qualname, arguments)


def is_known_model(text: str) -> bool:
    """Return True if `text` is no file here, but the name of a well-known model: `meta-llama/Llama-3.1-8B`."""
    known = known_config(text, exact=True) if text.count("/") == 1 and not Path(text).exists() else None
    return known is not None and known[0].endswith("Config")  # and no part of a pipeline, which diffusers has


def _called(qualname: str, text: str) -> tuple[str, Mapping[str, object]]:
    """Return the name after `::` and the arguments of its call."""
    if "(" not in qualname:
        return qualname, {}
    hint = "Write numbers, texts, lists of these and names of the file: model.py::UNet(n_channels=3, n_classes=2)."
    try:
        call = literal_call(qualname)
    except Unknown as error:
        raise TargetError(f"{text}: the argument {error} cannot be read", hint) from error
    if call is None:
        raise TargetError(f"{text}: {qualname} is neither a name nor a call", hint)
    return call
