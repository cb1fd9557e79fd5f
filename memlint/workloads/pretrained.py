"""Random weights of the same sizes for models whose pretrained weights are not on this machine.

A model of transformers is loaded by its own `from_pretrained` from a checkpoint made for it, so that the memory used
while loading counts. The checkpoint has the sizes of the config beside it, or of a well-known model.
"""

from __future__ import annotations

import ast
import copy
import functools
import importlib
import inspect
import json
import re
import shlex
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import torch

from memlint.base.after_import import after_import
from memlint.base.frames import user_frames
from memlint.base.guarded_imports import statements_at
from memlint.base.variables import variables_of
from memlint.targets.known_configs import ARCHITECTURES, KNOWN_CONFIGS, known_config, likeness
from memlint.workloads.absent_weights import Absent
from memlint.workloads.hub_downloads import download_of
from memlint.workloads.lightning_checkpoints import replace_lightning
from memlint.workloads.missing_checkpoints import Put, replace_loads
from memlint.workloads.notes import note, note_assumption, note_fake_data, note_replaced
from memlint.workloads.pipelines import replace_pipelines
from memlint.workloads.stated_configs import stated_config

_OF_CONFIGS = (
    *("trust_remote_code", "revision", "cache_dir", "subfolder", "token", "local_files_only"),
    *("force_download", "proxies", "gguf_file", "_configuration_file", "_commit_hash", "_from_auto", "_from_pipeline"),
)
"""Arguments of `from_pretrained` that locate a config."""
_OPTION = "add --config-of {}=config.json; no weights are needed"
_OF_BITS, _WITHOUT_BITS = ("load_in_8bit", "load_in_4bit"), 5
"""Arguments that quantize weights, and the version of transformers that has dropped them for `quantization_config`."""
_OF_PLACE = ("subfolder", "variant", "revision", "use_safetensors")
"""Arguments that locate weights, or select their kind."""


def _hint(source: object, options: Mapping[str, Any]) -> str:
    folder = "give the path of a folder with its config.json instead, or "
    return download_of(str(source), options.get("subfolder")) + folder + _OPTION.format(source)


def replace_pretrained(put: Put) -> None:
    """Make models whose weights are missing here load random ones; `put` sets an attribute of an owner."""
    loads = {
        "transformers.modeling_utils": ("PreTrainedModel", _of_model),
        "transformers.models.auto.auto_factory": ("_BaseAutoModelClass", _of_auto_model),
    }
    for module, (name, architecture) in loads.items():
        after_import(module, _replacing_loads(put, name, architecture))
    after_import("transformers.configuration_utils", lambda module: _replace_configs(module.PretrainedConfig, put))
    after_import("diffusers.configuration_utils", lambda module: _replace_diffusers_configs(module.ConfigMixin, put))
    after_import("diffusers.models.modeling_utils", lambda module: _replace_diffusers(module, put))
    after_import("diffusers.pipelines.pipeline_utils", lambda module: replace_pipelines(module, put))
    after_import("huggingface_hub.hub_mixin", lambda module: _replace_mixins(module, put))
    after_import("timm.models._builder", lambda module: _replace_timm(module, put))
    replace_lightning(put)
    _replace_hub(put)
    replace_loads(put, note_replaced)


def replace_downloads(put: Put) -> None:
    """Make models whose weights can neither be downloaded nor are here keep those that they have."""
    after_import("torchvision.models._api", lambda module: _replace_download(module, put))
    _replace_download(torch.hub, put)


# --- transformers


def _replacing_loads(put: Put, name: str, architecture: Callable[[Any, Any], Any]) -> Callable[[ModuleType], None]:
    def replace(module: ModuleType) -> None:
        owner = getattr(module, name)
        load = vars(owner)["from_pretrained"].__func__

        def from_pretrained(cls: Any, /, pretrained_model_name_or_path: Any = None, *args: Any, **kwargs: Any) -> Any:
            source, kwargs = pretrained_model_name_or_path, _with_quantization(kwargs)
            try:
                return load(cls, source, *args, **kwargs)
            except (OSError, AttributeError) as error:
                if source is None or _is_checkpoint(source):
                    raise
                if isinstance(error, AttributeError) and Path(source).exists():
                    raise  # older versions of transformers ask a missing file for its name
                config = _config(cls, source, kwargs)
                if config is None and _is_for_state():
                    note_assumption(f"the weights of {source} are not on this machine: they are random")
                    return Absent(OSError(f"{source} is not on this machine"))
                if config is None:
                    known = ", ".join(get_close_matches(Path(str(source)).name.lower(), KNOWN_CONFIGS))
                    error.__dict__.pop("__notes__", None)  # that it needs the config of it
                    what = f"wants the model {source!r}, which is not on this machine"
                    note(error, what, _hint(source, kwargs), known)
                    raise
            with tempfile.TemporaryDirectory(prefix=_CHECKPOINT) as folder:
                made = architecture(cls, copy.deepcopy(config))  # saving notes a dtype in it
                untie(made, (known_config(str(source)) or ("", {}))[1])
                _save(made, folder)
                loaded = load(cls, folder, *args, **{key: kwargs[key] for key in kwargs if key not in _OF_PLACE})
            model = loaded[0] if isinstance(loaded, tuple) else loaded  # with `output_loading_info`
            dtype = str(model.dtype).removeprefix("torch.")
            note_assumption(f"the weights of {source} are not on this machine: they are random, in {dtype}")
            model.name_or_path = model.config._name_or_path = str(source)
            return loaded

        put(owner, "from_pretrained", classmethod(from_pretrained))

    return replace


def _is_for_state() -> bool:
    """Return True if the user's line takes only weights of what it loads: `from_pretrained(name).state_dict()`."""
    frame = next(user_frames(), None)
    around = () if frame is None else statements_at(frame.f_code.co_filename, frame.f_lineno)
    line = min(around, key=lambda each: (each.end_lineno or 0) - each.lineno, default=None)
    taken = (each for each in ast.walk(line or ast.Module([], [])) if isinstance(each, ast.Attribute))
    return any(each.attr == "state_dict" and "from_pretrained(" in ast.unparse(each.value) for each in taken)


def _with_quantization(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return arguments of `from_pretrained` with a config in place of `load_in_8bit`, which version 5 takes no more."""
    transformers: Any = importlib.import_module("transformers")
    asked = {name: value for name, value in arguments.items() if name in _OF_BITS}
    if not asked or int(transformers.__version__.partition(".")[0]) < _WITHOUT_BITS:
        return arguments
    others = {name: value for name, value in arguments.items() if name not in asked}
    if not any(asked.values()) or others.get("quantization_config") is not None:
        return others
    shown = ", ".join(f"{name}={value}" for name, value in asked.items() if value)
    note_assumption(
        f"transformers {transformers.__version__} has no argument {shown}: it is a BitsAndBytesConfig of it"
    )
    return {**others, "quantization_config": transformers.BitsAndBytesConfig(**asked)}


def _replace_configs(owner: Any, put: Put) -> None:
    load = vars(owner)["get_config_dict"].__func__

    def get_config_dict(
        cls: Any, /, pretrained_model_name_or_path: Any, **kwargs: Any
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the settings of a config, and the arguments that change it."""
        source = pretrained_model_name_or_path
        try:
            fields: tuple[dict[str, Any], dict[str, Any]] = load(cls, source, **kwargs)
        except OSError as error:
            changes = {name: value for name, value in kwargs.items() if name not in _OF_CONFIGS}
            if (stated := stated_config(str(source), kwargs.get("subfolder") or "")) is not None:
                return stated, changes
            known = known_config(str(source), kwargs.get("subfolder") or "")
            if known is None:
                note(error, f"wants the config {source!r}, which is not on this machine", _hint(source, kwargs))
                raise
            import transformers  # noqa: PLC0415 -- whoever asks has imported it

            known_as = likeness(str(source)) or "it is the one that is known by this name"
            note_assumption(f"the config of {source} is not on this machine: {known_as}")
            kind = getattr(transformers, known[0])
            names = [ARCHITECTURES[known[0]]] if known[0] in ARCHITECTURES else None
            fields = {**known[1], "model_type": kind.model_type, "architectures": names}, changes
        return fields

    put(owner, "get_config_dict", classmethod(get_config_dict))


_VISION = "pytorch/vision"
"""The repository of torchvision on PyTorch's hub."""
_CHECKPOINT = "memlint-checkpoint-"


def _is_checkpoint(source: Any) -> bool:
    """Return True for a checkpoint made here, which lacks nothing."""
    return Path(str(source)).name.startswith(_CHECKPOINT)


def _config(cls: Any, source: Any, kwargs: dict[str, Any]) -> Any:
    """Return the config of the model `source`, as `cls` takes it: the given one, or that of its name; None without."""
    import transformers  # noqa: PLC0415 -- whoever asks has imported it

    if isinstance(kwargs.get("config"), transformers.PretrainedConfig):
        return kwargs["config"]
    try:
        options = {name: kwargs[name] for name in _OF_CONFIGS if name in kwargs}
        kind = getattr(cls, "config_class", None) or transformers.AutoConfig
        return kind.from_pretrained(kwargs.get("config") or source, **options)
    except (OSError, ValueError):
        return None


def _of_model(cls: Any, config: Any) -> Any:
    return cls._from_config(config)


def _of_auto_model(cls: Any, config: Any) -> Any:
    return cls.from_config(config)


def untie(model: Any, fields: dict[str, Any]) -> None:
    """Give a model output embeddings of its own where its config says so, as its checkpoint has them.

    transformers ties those of T5 whatever the config says, but for a checkpoint in which both are, and differ.
    """
    if fields.get("tie_word_embeddings") is not False:
        return
    outputs, inputs = model.get_output_embeddings(), model.get_input_embeddings()
    if outputs is not None and outputs.weight is inputs.weight:
        outputs.weight = torch.nn.Parameter(torch.randn_like(outputs.weight))


def _save(model: Any, folder: str) -> None:
    """Write a checkpoint of the model without the head of a classifier, which every user trains anew."""
    base = f"{model.base_model_prefix}."
    weights = model.state_dict()
    if model.get_output_embeddings() is None and any(name.startswith(base) for name in weights):
        weights = {name: weight for name, weight in weights.items() if name.startswith(base)}
    dtype = getattr(model.config, "dtype", None) or torch.float32
    if isinstance(dtype, str):
        dtype = getattr(torch, dtype)
    weights = {name: weight.to(dtype) if weight.is_floating_point() else weight for name, weight in weights.items()}
    model.save_pretrained(folder, state_dict=weights)


# --- diffusers


def _replace_diffusers_configs(owner: Any, put: Put) -> None:
    load = vars(owner)["load_config"].__func__

    def load_config(cls: Any, /, pretrained_model_name_or_path: Any, *args: Any, **kwargs: Any) -> Any:
        source = pretrained_model_name_or_path
        try:
            return load(cls, source, *args, **kwargs)
        except OSError as error:
            folder = kwargs.get("subfolder") or ""
            stated, known = stated_config(str(source), folder), known_config(str(source), folder)
            if stated is not None:
                known = str(stated.pop("_class_name", "")), stated
            if known is None:
                what = f"the config of {str(source)!r}{f', {folder}' if folder else ''}, which is not on this machine"
                fetch = download_of(str(source), folder)
                note(error, f"wants {what}", f"{fetch}give the path of a folder that has it; no weights are needed")
                raise
            if stated is None:
                text = f"the config of {source}, {folder} is not on this machine: it is the one known by this name"
                note_assumption(text)
            config = {"_class_name": known[0], **known[1]}
            answers: dict[str, Any] = {"return_unused_kwargs": {}, "return_commit_hash": None}
            asked = [answer for name, answer in answers.items() if kwargs.get(name)]
            return (config, *asked) if asked else config

    put(owner, "load_config", classmethod(load_config))


def _replace_diffusers(module: ModuleType, put: Put) -> None:
    load = vars(module.ModelMixin)["from_pretrained"].__func__

    def from_pretrained(cls: Any, /, pretrained_model_name_or_path: Any, **kwargs: Any) -> Any:
        source = pretrained_model_name_or_path
        try:
            return load(cls, source, **kwargs)
        except OSError:
            model = cls.from_config(cls.load_config(source, subfolder=kwargs.get("subfolder")))
            note_assumption(f"the weights of {source} are not on this machine: they are random")
            return model.eval().to(kwargs.get("torch_dtype") or torch.float32)

    put(module.ModelMixin, "from_pretrained", classmethod(from_pretrained))


# --- models of other packages on the Hub


def _replace_mixins(module: ModuleType, put: Put) -> None:
    """Make classes that huggingface_hub gives a `from_pretrained` take a stated config, and random weights."""
    download = module.hf_hub_download

    @functools.wraps(download)
    def downloaded(repo_id: str, filename: str, **options: Any) -> Any:
        try:
            return download(repo_id, filename, **options)
        except OSError as error:
            if filename == module.constants.CONFIG_NAME:
                if not (config := config_of_caller(sys._getframe(1), repo_id)):
                    what = f"wants the config of {repo_id!r}, which is not on this machine"
                    note(error, what, download_of(repo_id) + _OPTION.format(repo_id))
                    raise
                return config
            if filename != module.constants.PYTORCH_WEIGHTS_NAME:
                raise  # it asks for another form of the weights
        note_assumption(f"the weights of {repo_id} are not on this machine: they are random")
        return f"{repo_id}/{filename}"  # where nothing is: it gets absent weights

    put(module, "hf_hub_download", downloaded)


def config_of_caller(frame: FrameType, name: str) -> str:
    """Return a file with the config that is stated, or with the defaults of the class whose method asks for it.

    `frame` is that of the class method. Empty where nothing is stated, and the class cannot do without arguments.
    """
    if (stated := stated_config(name)) is not None:
        return _written(stated)
    kind = variables_of(frame).get("cls")
    if not isinstance(kind, type):
        return ""
    parameters = inspect.signature(kind).parameters.values()
    defaults = {each.name: each.default for each in parameters if each.kind is not each.VAR_KEYWORD}
    with suppress(TypeError):  # of a default that no file can hold, such as "none"
        config = _written(defaults)
        note_fake_data(f"the config of {name} is not on this machine: {kind.__name__} has its own defaults")
        return config
    return ""


def _written(config: dict[str, Any]) -> str:
    """Write settings into a file of their own; return its path."""
    file = Path(tempfile.mkdtemp(prefix=_CHECKPOINT), "config.json")
    file.write_text(json.dumps(config), encoding="utf-8")
    return str(file)


# --- timm, torchvision and other code that loads weights from an address


def _replace_download(module: Any, put: Put) -> None:
    download = module.load_state_dict_from_url

    def load_state_dict_from_url(url: str, *args: Any, **kwargs: Any) -> Any:
        try:
            return download(url, *args, **kwargs)
        except OSError as error:
            note_assumption(f"the weights at {url} are not on this machine: they are random")
            return Absent(error)

    put(module, "load_state_dict_from_url", load_state_dict_from_url)


def _replace_hub(put: Put) -> None:
    """Let `torch.hub.load` build models of torchvision and the project without the hub, and say how to fetch others."""
    load: Callable[..., Any] = torch.hub.load

    @functools.wraps(load)
    def load_from_hub(repo_or_dir: str, model: str, *args: Any, **kwargs: Any) -> Any:
        try:
            return load(repo_or_dir, model, *args, **kwargs)
        except (OSError, RuntimeError) as error:
            if str(repo_or_dir).partition(":")[0] == _VISION:
                models: Any = importlib.import_module("torchvision.models")
                if model in models.list_models():
                    note_assumption(f"the weights of {model} are not on this machine: they are random")
                    return models.get_model(model, weights=None)
            if (folder := _hub_of_project(model)) is not None:
                return load(folder, model, *args, **{**kwargs, "source": "local"})
            call = f'import torch; torch.hub.load("{repo_or_dir}", "{model}")'
            hint = f"fetch it once where memlint runs: {sys.executable} -c {shlex.quote(call)}"
            note(error, f"loads {model} of {repo_or_dir}, which is not on this machine", hint)
            raise

    put(torch.hub, "load", load_from_hub)


def _hub_of_project(model: str) -> str | None:
    """Return the nearest folder around the running line whose `hubconf.py` has a model of this name."""
    for frame in islice(user_frames(), 1):
        for folder in Path(frame.f_code.co_filename).parents:
            with suppress(OSError):
                if re.search(rf"\b{re.escape(model)}\b", (folder / "hubconf.py").read_text(encoding="utf-8")):
                    return str(folder)
    return None


def _replace_timm(module: ModuleType, put: Put) -> None:
    load = module.load_pretrained

    def load_pretrained(model: Any, *args: Any, **kwargs: Any) -> None:
        try:
            load(model, *args, **kwargs)
        except OSError:
            note_assumption(f"the weights of {type(model).__name__} are not on this machine: they are random")

    put(module, "load_pretrained", load_pretrained)
