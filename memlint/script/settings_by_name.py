"""Settings that a script has in namespaces, configs and variables, found by their names.

A value that stands for training is preferred to one for evaluation, and a name that says it exactly to one that may.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from linecache import getlines
from types import FrameType, ModuleType
from typing import Any, NamedTuple

from memlint.base.frames import user_frames
from memlint.base.ownership import file_of, is_users
from memlint.base.variables import variables_of
from memlint.source.training_loop import OPTIMIZERS, side_of_dataset
from memlint.targets.built import Setting
from memlint.workloads.model_sizes import CONFIG_NAMES, DEFAULT_LENGTH, IMAGE_SIZES, sides_of

BATCH = (
    *("device_train_microbatch_size", "microbatch_size", "microbatch", "micro_batch"),
    *("per_device_train_batch_size", "train_batch_size", "batch_size_train", "train_batch", "batch_size_per_gpu"),
    *("per_device_batch_size", "per_gpu_batch_size", "batch_size_per_device", "local_batch_size"),
    *("micro_batch_size", "device_batch_size", "batch_size", "batchsize", "batch", "bs"),
)
"""Names of the number of items per batch, the surest first."""
MICROBATCH = ("device_train_microbatch_size", "microbatch_size", "micro_batch_size", "microbatch", "micro_batch")
"""Names of the number of items of one of the parts in which a step takes its batch."""
GLOBAL_BATCH = ("global_batch_size", "total_batch_size", "effective_batch_size")
"""Names of the number of items per batch of all ranks together."""
ACCUMULATION = (
    *("gradient_accumulation_steps", "grad_accumulation_steps", "grad_accum_steps", "accumulate_grad_batches"),
    *("accumulation_steps", "gradient_accumulation", "accum_iter", "grad_accum", "accum_steps"),
)
"""Names of the number of batches per step."""
LENGTH = (
    *("max_seq_len", "max_seq_length", "max_sequence_length", "seq_len", "seq_length", "sequence_length"),
    *("block_size", "context_length", "context_len", "context_size", "model_max_length", "cutoff_len", "bptt"),
    *("tgt_len", "max_length", "max_text_length", "max_text_len", "l_max", "horizon"),
)
"""Names of the length of a sequence in training, the surest first."""
_VARIABLES = ("enc_in", "n_vars", "num_variables", "num_variates", "num_nodes")
"""Names of the number of values at each step of a series."""
_AUTOCAST = ("mixed_precision", "precision", "amp_dtype", "autocast_dtype")
"""Names of settings whose text says a dtype."""
_SWITCHES = {
    "bf16-amp": ("bf16", "use_bf16", "use_bfloat16"),
    "fp16-amp": ("fp16", "use_fp16", "use_amp", "amp", "amp_enable", "enable_amp"),
}
"""Names of settings that switch autocast on."""
_OF_APEX = ("amp_opt_level", "opt_level", "amp_level")
"""Names of the level of apex's mixed precision, of which O1 is autocast."""
_APEX_IMPORT = re.compile(r"^\s*(?:import apex\s*$|import apex\.amp\b|from apex\.amp\b|from apex import .*\bamp\b)")
_MIXES = re.compile(r"autocast|\bamp\b|GradScaler|Accelerator|Fabric|Lightning|Trainer|deepspeed", re.IGNORECASE)
"""Words of a line that may switch mixed precision on."""
_OPTIMIZER = re.compile(r"(.*_)?(optim|optimizer|opt|solver)(_?(name|type|kind|class))?")
_FRAMES = re.compile(r"frames?|tokens?", re.IGNORECASE)
_SIDE_OF_IMAGE = re.compile(r"(?:img|image|input)_?(h(?:eight)?|w(?:idth)?)")
"""Names of one side of images."""
_KINDS = ("type", "name", "kind", "class_path")
"""Names of the class in a config of one thing."""
_DATASET = re.compile(r"(.*_)?(data_?set|data|task)(_?(name|type|id))?")
"""Names of settings whose text says an optimizer, or a data set."""
_EVALUATION = ("val", "eval", "test", "infer", "sample", "predict")
_VOCABULARY = re.compile(r"(n_?|num_)?vocab(ulary)?(_?size)?")
_LONGEST_TRAINED = 8192
"""More beside a vocabulary is how far a pretrained model may read, and no length of its training."""
_MOST_DEPTH = 5
_MOST_VALUES = 4096
_MOST_NUMBER = 1 << 31
_MOST = 1 << 15
"""A larger batch is one of tokens."""


class Value(NamedTuple):
    """A plain value somewhere in a script's settings."""

    path: tuple[str, ...]
    """Names that lead to it: the variable, then keys and attributes."""
    value: bool | int | float | str

    @property
    def name(self) -> str:
        """Its own name, in lower case."""
        return self.path[-1].lower().replace("-", "_")

    @property
    def is_for_evaluation(self) -> bool:
        """True if one of the names says evaluation."""
        return any(word in part.lower() for part in self.path for word in _EVALUATION)


def values_in(frames: Iterable[FrameType], others: Iterable[Mapping[str, Any]] = ()) -> list[Value]:
    """Return the plain values in the variables of `frames`, innermost first, and in `others`."""
    found: list[Value] = []
    seen: set[int] = set()
    namespaces = [space for frame in frames for space in (variables_of(frame), frame.f_globals)]
    for variables in (*namespaces, *others):
        if id(variables) in seen:
            continue
        seen.add(id(variables))
        for name, value in list(variables.items()):
            if name == "self":
                for key, attribute in list(getattr(value, "__dict__", {}).items()):
                    found += _plain(attribute, (name, key), seen)
            elif not name.startswith("_") and len(found) < _MOST_VALUES:
                found += _plain(value, (name,), seen)
    return found


def with_typed(arguments: Sequence[str], values: Sequence[Value]) -> list[Value]:
    """Return the whole numbers of a command line, `--batch_size 8` and `data.batch_size=8`, and then the values.

    A batch that the program has divided since, as among its ranks, is not the one that was typed.
    """
    kept = (each for each in _typed(arguments) if each.name not in BATCH or not _is_divided(each, values))
    return [*kept, *values]


def _is_divided(typed: Value, values: Iterable[Value]) -> bool:
    """Return True if the program has a part of a number under its name, and not the number itself."""
    whole, same = int(typed.value), {each.value for each in values if each.name == typed.name}
    return whole not in same and any(type(part) is int and part > 1 and whole % part == 0 for part in same)


def _typed(arguments: Sequence[str]) -> list[Value]:
    pairs = re.findall(r"(?:^|\s)-{0,2}([A-Za-z][\w.-]*)[= ](\d+)(?=\s|$)", " ".join(arguments))
    return [Value((name.rpartition(".")[2],), int(number)) for name, number in pairs]


def named_setting(values: Iterable[Value], names: tuple[str, ...]) -> Setting | None:
    """Return the number from 1 that one of `names` stands for; values for evaluation are the last choice."""
    numbers = [each for each in values if type(each.value) is int and each.name in names and 1 <= each.value <= _MOST]
    best = min(numbers, key=lambda each: (each.is_for_evaluation, names.index(each.name)), default=None)
    if best is None:
        return None
    assert isinstance(best.value, int), "only whole numbers were chosen"
    return Setting(best.value, f"{'.'.join(best.path)} = {best.value}", is_sure=False)


def num_variables() -> int | None:
    """Return the number of values at each step of a series that the settings around the reading line say."""
    setting = named_setting(values_in(user_frames()), _VARIABLES)
    return None if setting is None else int(setting.value)


def batch_of_frames(values: Collection[Value]) -> Setting | None:
    """Return the number of items in a batch that counts frames or tokens, as another setting says; else None."""
    says = any(
        isinstance(each.value, str) and "batch" in each.name and _FRAMES.fullmatch(each.value) for each in values
    )
    named = (each for each in values if type(each.value) is int and each.name in BATCH and not each.is_for_evaluation)
    whole = next(named, None) if says else None
    if whole is None:
        return None
    length = named_setting(lengths_in(values), LENGTH)
    size = DEFAULT_LENGTH if length is None else int(length.value)
    text = f"{'.'.join(whole.path)} = {whole.value}, which counts frames or tokens, in items of {size}"
    return Setting(max(int(whole.value) // size, 1), text, is_sure=False)


def lengths_in(values: Collection[Value]) -> list[Value]:
    """Return the values without the limits of language models, which stand in their configs."""
    of_models = {each.path[:-1] for each in values if _VOCABULARY.fullmatch(each.name)}
    return [
        each
        for each in values
        if not (type(each.value) is int and each.value > _LONGEST_TRAINED and each.path[:-1] in of_models)
    ]


def named_autocast(values: Iterable[Value]) -> Setting | None:
    """Return the dtype of autocast, `bf16-amp` or `fp16-amp`, if a setting names it or switches it on.

    A `dtype` counts beside a `mixed_precision` that is True. None counts where no loaded file would mix dtypes: there
    the setting is left from elsewhere.
    """
    known = list(values) if _is_loaded(_MIXES) else []
    is_on = any(each.value is True and each.name in _AUTOCAST for each in known)
    names = (*_AUTOCAST, "dtype", "which_dtype") if is_on else _AUTOCAST
    for each in known:
        source = f"{'.'.join(each.path)} = {each.value}"
        if each.value is True:
            for dtype, switches in _SWITCHES.items():
                if each.name in switches:
                    return Setting(dtype, source, is_sure=False)
        text = str(each.value).lower().removeprefix("amp_")
        if each.name in _OF_APEX and text == "o1" and _is_loaded(_APEX_IMPORT):
            return Setting("fp16-amp", source, is_sure=False)
        if each.name in names and not isinstance(each.value, bool) and "true" not in text:
            if text.startswith(("bf16", "bfloat16")):
                return Setting("bf16-amp", source, is_sure=False)
            if text in ("fp16", "float16", "16", "16-mixed"):
                return Setting("fp16-amp", source, is_sure=False)
    return None


def _is_loaded(line: re.Pattern[str]) -> bool:
    """Return True if a loaded file of the user's has such a line: options for what none has are left from elsewhere."""
    files = [file for module in list(sys.modules.values()) if is_users((file := file_of(module)) or "<")]
    return any(map(line.search, (each for file in files for each in getlines(file))))


def named_optimizer(values: Iterable[Value]) -> Setting | None:
    """Return memlint's name of the optimizer that a setting names, such as `optimizer_type = "sgd"`.

    SGD has momentum unless another setting says that it has none.
    """
    by_name = {each.lower(): name for kind, name in OPTIMIZERS.items() for each in (kind, name)}
    known = list(values)
    has_none = any(each.name == "momentum" and not each.value for each in known)
    for each in known:
        words = each.path[-2:] if each.name in _KINDS else each.path[-1:]
        kind = each.value.rpartition(".")[2].lower() if isinstance(each.value, str) else ""
        if kind in by_name and _OPTIMIZER.fullmatch(words[0].lower().replace("-", "_")):
            name = by_name[kind]
            name = "sgd-momentum" if name == "sgd" and not has_none else name
            return Setting(name, f"{'.'.join(each.path)} = {each.value}", is_sure=False)
    return None


def sizes_of(values: Collection[Value]) -> dict[str, int]:
    """Return the whole numbers from 1 by name; of several with one name the first."""
    sizes: dict[str, int] = {}
    for each in values:
        if type(each.value) is int and 1 <= each.value < _MOST_NUMBER and not each.is_for_evaluation:
            sizes.setdefault(each.path[-1], each.value)
            if each.name in IMAGE_SIZES:  # of a config in capitals
                sizes.setdefault(each.name, each.value)
            if (match := _SIDE_OF_IMAGE.fullmatch(each.name)) is not None:
                sizes.setdefault("image_height" if match[1].startswith("h") else "image_width", each.value)
    if "gt_size" in sizes and sizes.keys().isdisjoint(IMAGE_SIZES):  # what super-resolution makes of a smaller image
        sizes["image_size"] = max(sizes["gt_size"] // sizes.get("scale", 1), 1)
    named = (each for each in values if isinstance(each.value, str) and _DATASET.fullmatch(each.name))
    side = next((known for each in named if (known := side_of_dataset(str(each.value))) is not None), None)
    return sizes if side is None or not sizes.keys().isdisjoint(IMAGE_SIZES) else {**sizes, "image_size": side}


def _plain(value: Any, path: tuple[str, ...], seen: set[int]) -> Iterator[Value]:
    if type(value) in (bool, int, float, str):
        yield Value(path, value)
        return
    if len(path) > _MOST_DEPTH or id(value) in seen:
        return
    if isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray):  # such as OmegaConf's lists
        with suppress(Exception):  # a missing value of OmegaConf, code of the user's own
            value = list(value)
            yield from _sides(value, path)
        return
    entries = _entries(value, path[-1])
    if entries:
        seen.add(id(value))
    for name, entry in entries:
        if isinstance(name, str) and not name.startswith("_"):
            yield from _plain(entry, (*path, name), seen)


def _sides(value: Sequence[Any], path: tuple[str, ...]) -> Iterator[Value]:
    """Yield the size of images that a height and a width say, perhaps with channels; two equal ones by any name."""
    is_image = path[-1].lower() in IMAGE_SIZES
    sides = sides_of(value) if is_image or len(value) == len(("height", "width")) else None
    if sides is None:
        return
    height, width = sides
    if height == width:
        yield Value(path, height)
    elif is_image:
        yield Value((*path[:-1], "image_height"), height)
        yield Value((*path[:-1], "image_width"), width)


def _entries(value: Any, name: str) -> list[tuple[Any, Any]]:
    """Return names and values of a namespace, a mapping, a dataclass or a config of a library; else nothing.

    An object or a module of the project's own is a config if it has the name of one.
    """
    kind = type(value)
    if isinstance(value, ModuleType):
        return _constants(value) if name.lower().endswith(CONFIG_NAMES) else []
    if isinstance(value, type):
        return _attributes(value) if value.__name__.lower().endswith(CONFIG_NAMES) else []
    with suppress(Exception):  # a missing value of OmegaConf, code of the user's own mapping
        if isinstance(value, Mapping):
            return list(items_of(value))
        if dataclasses.is_dataclass(value):
            return [(field.name, getattr(value, field.name, None)) for field in dataclasses.fields(value)]
        if "namespace" in kind.__name__.lower() or kind.__name__.lower().endswith(("config", "cfg", "args", "hparams")):
            return [*vars(value).items(), *(each for each in _attributes(kind) if each[0] not in vars(value))]
        if hasattr(kind, "keys") and hasattr(kind, "__getitem__"):
            return [(name, value[name]) for name in value.keys()]  # noqa: SIM118 -- no Mapping
        is_own = is_users(getattr(sys.modules[kind.__module__], "__file__", "<"))
        if is_own and name.lower().endswith((*CONFIG_NAMES, "exp")):
            return list(vars(value).items())
    return []


def items_of(values: Mapping[Any, Any]) -> Iterator[tuple[Any, Any]]:
    """Yield the entries of a mapping that have a value: OmegaConf raises for one that is yet to be given."""
    for key in list(values)[:_MOST_VALUES]:
        with suppress(Exception):
            yield key, values[key]


def _attributes(kind: type) -> list[tuple[str, Any]]:
    """Return the plain values, lists and tuples that a class of the project's own states for all its objects."""
    plain = (bool, int, float, str, list, tuple)
    own = [
        each for each in kind.__mro__ if is_users(getattr(sys.modules.get(each.__module__), "__file__", None) or "<")
    ]
    return [(name, value) for each in own for name, value in list(vars(each).items()) if type(value) in plain]


def _constants(module: ModuleType) -> list[tuple[Any, Any]]:
    """Return the plain values that a module of the project's own assigns."""
    if not is_users(file_of(module) or "<"):
        return []
    return [(name, value) for name, value in list(vars(module).items()) if type(value) in (bool, int, float, str)]
