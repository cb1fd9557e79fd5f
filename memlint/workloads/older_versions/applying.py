"""Amendments in this process: what an installed package no longer has is there, or is done without."""

from __future__ import annotations

import argparse
import builtins
import functools
import inspect
import json
import operator
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import is_dataclass
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, TypeVar

from memlint.base.after_import import after_import
from memlint.base.ownership import file_of, is_users
from memlint.distributed.rank import Rank
from memlint.memory.records import Assumption
from memlint.targets.script import Amendment
from memlint.workloads.environment_variables import made_up_value
from memlint.workloads.notes import replaced
from memlint.workloads.older_versions.assertions import without_assertion
from memlint.workloads.older_versions.former_audio import with_real_spectra
from memlint.workloads.older_versions.former_timm import with_former_model
from memlint.workloads.older_versions.former_torchmetrics import with_tasks
from memlint.workloads.older_versions.former_transformers import put_former_settings, used
from memlint.workloads.older_versions.former_trl import with_settings_as_arguments
from memlint.workloads.older_versions.hydra_files import with_paths_of_configs
from memlint.workloads.older_versions.learning import amendment_of
from memlint.workloads.older_versions.lightning_arguments import (
    RESTORED,
    with_index_of_loader,
    with_one_device,
    with_settable_hparams,
    with_several_optimizers,
    with_strategy,
    with_usual_strategy,
    without_hook,
    without_sanity_check,
)
from memlint.workloads.older_versions.names import Place, installed_version, place_of
from memlint.workloads.older_versions.renames import (
    ARGUMENTS,
    ATTRIBUTES,
    DEFAULTS,
    POSITIONAL,
    TOUCHES_MEMORY,
    Argument,
)
from memlint.workloads.placeholders.objects import stand_in_for_name
from memlint.workloads.placeholders.second_import import forget_users, stand_in_for_broken

T = TypeVar("T")
_FIELD_OF = "_get_field"
"""Name of the function of `dataclasses` that makes the field of an attribute."""
_made: set[Amendment] = set()
"""Changes that were made in this process."""
_SAYS_OR_MEASURES = re.compile("metric|telemetry", re.IGNORECASE)
"""Words in the names of what no tensor of a training passes through."""
_texts: dict[str, None] = {}
"""Changes made in this process, as texts."""


def amend(amendment: Amendment) -> None:
    """Make this change; before the program's own imports, or between two tries of them."""
    _made.add(amendment)
    if amendment.kind in _AT_IMPORT and amendment.owner:
        after_import(amendment.owner, functools.partial(_AT_IMPORT[amendment.kind], amendment.name))
    if (text := _SAID.get(amendment.kind)) is not None:
        _texts[text.format(amendment.name, made_up_value(amendment.name))] = None
    if (at_once := _AT_ONCE.get(amendment.kind)) is not None:
        at_once(amendment)


def _leave_keyword_out(amendment: Amendment) -> None:
    if not amendment.owner:
        _without_keyword_of_users(amendment.name)


def _load_all(_amendment: Amendment) -> None:
    os.environ["TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"] = "1"


def _leave_option_out(amendment: Amendment) -> None:
    sys.argv[1:] = _without_option(sys.argv[1:], amendment)


def _fill_in(amendment: Amendment) -> None:
    """Replace a word of the command line, or the value of an option."""
    for i, word in enumerate(sys.argv[1:], 1):
        option, has_value, value = word.rpartition("=")
        if amendment.owner in (word, value):
            sys.argv[i] = amendment.name if word == amendment.owner else f"{option}{has_value}{amendment.name}"
    _texts[f"{amendment.owner} is taken as {amendment.name}, which is there"] = None


def _put_first(amendment: Amendment) -> None:
    """Let a package of the project be found before an installed one of its name."""
    sys.path.insert(0, amendment.name)
    for name in [each for each in sys.modules if each.partition(".")[0] == amendment.owner]:
        del sys.modules[name]


def _set_variables(amendment: Amendment) -> None:
    """Set those that a launcher sets, or one that names a place or an account, which is data that is made up."""
    if amendment.kind == "launcher":
        torchruns, clusters = Rank.current().variables(), Rank.current().cluster_variables()
        os.environ.update(clusters if amendment.name in clusters else torchruns)
        return
    os.environ[amendment.name] = value = made_up_value(amendment.name)
    replaced.append(_SAID["variable"].format(amendment.name, value))


def with_amendments(call: Callable[[], T]) -> T:
    """Return what `call` returns; it is called again after each change that packages of other versions need.

    The user's modules that it has imported are forgotten before that. Passes on all other exceptions.
    """
    modules = set(sys.modules)
    while True:
        try:
            return call()
        except Exception as error:
            amendment = amendment_of(error)
            if amendment is None or amendment in _made:
                raise
        amend(amendment)
        forget_users(modules)


def assumptions() -> list[Assumption]:
    """Return what was changed."""
    return [Assumption(text, None) for text in (*_texts, *used)]


# --- modules and names


class _Gone(ModuleType):
    """A module that an installed package no longer has: its names are where they are now."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        value = _value(self.__name__, name, "")
        setattr(self, name, value)
        return value


class _GoneFinder(MetaPathFinder, Loader):
    """Import hook behind all others: it finds modules that installed packages no longer have."""

    def find_spec(self, fullname: str, _path: object, _target: object = None) -> ModuleSpec | None:
        is_gone = any(f"{fullname}.".startswith(f"{each}.") for each in _gone)
        return ModuleSpec(fullname, self, is_package=True) if is_gone else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Gone(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


_gone: set[str] = set()
_finder = _GoneFinder()


def _find_gone(module: str) -> None:
    """Let a module be found that an installed package no longer has."""
    _gone.add(module)
    after_import(module.rpartition(".")[0], _as_package)
    if _finder not in sys.meta_path:
        sys.meta_path.append(_finder)


def _as_package(module: Any) -> None:
    """Let a module that was a package be asked for what was in it: only then does Python look further."""
    if not hasattr(module, "__path__"):
        module.__path__ = []


def _put_names(names: str, module: ModuleType) -> None:
    for name in names.split():
        _put_name(name, module)


def _put_name(name: str, module: ModuleType) -> None:
    if name in RESTORED:
        holder, _, method = name.partition(".")
        setattr(getattr(module, holder), method, RESTORED[name])
        package = module.__name__.partition(".")[0]
        _texts[f"{installed_version(package)} has no {name}: one that does as version 1 is there"] = None
        return
    message = ""
    try:
        getattr(module, name)
    except AttributeError as error:
        message = str(error)
    setattr(module, name, _value(module.__name__, name, message))
    if name not in (names := getattr(module, "__all__", (name,))):  # which a star takes
        setattr(module, "__all__", [*names, name])  # noqa: B010 -- no type has it


def _value(module: str, name: str, message: str) -> Any:
    place: Place | None = place_of(module, name, message)
    has_none = f"{installed_version(module.partition('.')[0])} has no {module}.{name}"
    if place is None:
        is_quiet = "loggers" in module.split(".") or name.endswith("Logger") or _SAYS_OR_MEASURES.search(name)
        does = "does nothing" if is_quiet else "fails when it is used"
        _texts[f"{has_none}: a placeholder that {does} stands for it"] = None
        return stand_in_for_name(f"{module}.{name}", has_none, is_quiet=bool(is_quiet))
    _texts[f"{has_none}: it is {place.name}"] = None
    return place.value


def _put_attribute(path: str, module: ModuleType) -> None:
    kind, _, name = path.partition(".")
    owner, package = getattr(module, kind), installed_version(module.__name__.partition(".")[0])
    if path not in ATTRIBUTES:
        put_former_settings(owner)
        _texts[f"{package} has no attribute {name} of {kind}: settings have the values that version 4 gave them"] = None
        return
    setattr(owner, name, _Renamed(ATTRIBUTES[path]))
    _texts[f"{package} has no attribute {name} of {kind}: it is {ATTRIBUTES[path] or None}"] = None


class _Renamed:
    """An attribute under its name of before; an object may have one of its own."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, owner: object, _kind: type) -> Any:
        return operator.attrgetter(self._name)(owner) if self._name else None


# --- arguments


def _without_keyword(path: str, module: ModuleType) -> None:
    """Let a function or constructor, which may be in a class, take an argument that it no longer has, and its like."""
    qualname, _, known = path.rpartition(".")
    *owners, name = qualname.split(".")
    holder: Any = functools.reduce(getattr, owners, module)
    function: Callable[..., Any] = vars(holder)[name]
    own = getattr(function, "__func__", function)
    kind = owners[-1] if owners else name
    parameters = inspect.signature(own).parameters.values()
    takes_any = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters)
    taken = {each.name for each in parameters} - {known}

    @functools.wraps(own)
    def call(*arguments: Any, **named: Any) -> Any:
        for keyword in [each for each in named if each == known or not (takes_any or each in taken)]:
            is_known = keyword in ARGUMENTS.get(kind, {})
            decides_on_bytes = not is_known and not TOUCHES_MEMORY.isdisjoint(keyword.lower().split("_"))
            if decides_on_bytes and _asks(named[keyword]):
                continue
            named = {**_as_now(module.__name__, kind, keyword, named.pop(keyword)), **named}
        return own(*arguments, **named)

    setattr(holder, name, type(function)(call) if isinstance(function, classmethod | staticmethod) else call)


def _asks(given: Any) -> bool:
    """Return True for a value of an argument that switches something on, or says how much."""
    return given is not None and given is not False and not (isinstance(given, int | float) and not given)


def _as_now(module: str, kind: str, keyword: str, given: Any) -> dict[str, Any]:
    """Return an argument that is gone under its present name; nothing where it has none, or asks for nothing."""
    instead = ARGUMENTS.get(kind, {}).get(keyword, Argument())
    has_none = f"{installed_version(module.partition('.')[0])} has no argument {keyword} of {kind}"
    _texts[f"{has_none}: {f'it is taken as {instead.name}' if instead.name else 'it is left out'}"] = None
    if not (instead.name and _asks(given)):
        return {}
    return {instead.name: given if instead.value == "{}" else _parsed(instead.value.format(given))}


def _without_keys(names: str, module: ModuleType) -> None:
    """Let a config file have settings of a training that are gone."""
    parser: Any = module.HfArgumentParser
    parse = parser.parse_dict

    @functools.wraps(parse)
    def parse_dict(self: Any, args: Mapping[str, Any], *more: Any, **named: Any) -> Any:
        settings = dict(args)
        for name in filter(args.__contains__, names.split()):
            settings = {**_as_now(module.__name__, "TrainingArguments", name, settings.pop(name)), **settings}
        return parse(self, settings, *more, **named)

    parser.parse_dict = parse_dict


def _with_names(path: str, module: ModuleType) -> None:
    """Let a function or method take by their places what it takes by their names alone."""
    *owners, name = path.split(".")
    holder: Any = functools.reduce(getattr, owners, module)
    function = vars(holder)[name]
    parameters = inspect.signature(function).parameters.values()
    names = [each.name for each in parameters if each.kind is inspect.Parameter.KEYWORD_ONLY]
    num = sum(each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD) for each in parameters)

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        more = dict(zip(names, arguments[num:], strict=False))
        if more:
            takes = f"{installed_version(module.__name__.partition('.')[0])} takes {', '.join(more)} of {path}"
            _texts[f"{takes} by name: they are taken in its order"] = None
        return function(*arguments[:num], **more, **named)

    setattr(holder, name, call)


def _without_positional(path: str, module: ModuleType) -> None:
    """Let a method take a number for its second argument, which had another meaning: it is left out."""
    kind, name = path.split(".")
    owner = getattr(module, kind)
    function = vars(owner)[name]

    @functools.wraps(function)
    def call(self: Any, first: Any, *others: Any, **named: Any) -> Any:
        if others and isinstance(others[0], int):
            package = installed_version(module.__name__.partition(".")[0])
            _texts[f"{package} has no argument {POSITIONAL[path]} of {path}: it is left out"] = None
            others = others[1:]
        return function(self, first, *others, **named)

    setattr(owner, name, call)


def _with_default(path: str, module: ModuleType) -> None:
    """Let a method take what it took before for an argument that is not given."""
    kind, name, keyword = path.split(".")
    owner = getattr(module, kind)
    function = vars(owner)[name]
    [before] = [value for _module, changed, value in DEFAULTS.values() if changed == path]

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        if keyword not in named:
            package = installed_version(module.__name__.partition(".")[0])
            _texts[f"{package} takes another value for {keyword} of {name} than before: it is {before}"] = None
        return function(*arguments, **{keyword: before, **named})

    setattr(owner, name, call)


def _with_any_values(_name: str, pandas: ModuleType) -> None:
    """Let columns of texts be of objects, as before pandas 3, which lets them have no other values."""
    pandas.set_option("future.infer_string", False)


def _with_ragged_arrays(_name: str, numpy: ModuleType) -> None:
    """Let rows of different lengths be an array of objects where no type is asked for, as before NumPy 1.24."""

    def making(make: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(make)
        def made(*args: Any, **named: Any) -> Any:
            try:
                return make(*args, **named)
            except ValueError as error:
                if len(args) > 1 or named.get("dtype") is not None or "inhomogeneous" not in str(error):
                    raise
                return make(*args, **{**named, "dtype": object})

        return made

    numpy.array, numpy.asarray = making(numpy.array), making(numpy.asarray)  # type: ignore[attr-defined]


def _without_abstract_methods(name: str, module: ModuleType) -> None:
    """Let classes derive from one without the methods that it has no body for."""
    kind: Any = functools.reduce(getattr, name.split("."), module)
    kind.__abstractmethods__ = frozenset()


def _with_loader(_name: str, module: Any) -> None:
    """Let the functions of PyYAML that load have a default for their loader."""

    def with_default(load: Callable[[Any, Any], Any]) -> Callable[..., Any]:
        @functools.wraps(load)
        def loaded(stream: Any, Loader: Any = module.FullLoader) -> Any:  # noqa: N803 -- its name there
            return load(stream, Loader)

        return loaded

    for name in ("load", "load_all"):
        setattr(module, name, with_default(getattr(module, name)))


def _with_objects_as_defaults(_name: str, module: Any) -> None:
    """Let a field of a dataclass have an object without a hash as its default; lists and their like are refused."""
    made = vars(module)
    field_of = made[_FIELD_OF]

    @functools.wraps(field_of)
    def field(cls: type, name: str, *args: Any) -> Any:
        default = vars(cls).get(name)
        kind: Any = type(default.default if isinstance(default, module.Field) else default)
        if kind.__hash__ is None and is_dataclass(kind):
            kind.__hash__ = object.__hash__  # type: ignore[method-assign]
        return field_of(cls, name, *args)

    made[_FIELD_OF] = field


def _with_numbers_as_seeds(_name: str, random: ModuleType) -> None:
    """Let `random.seed` take what counts as a whole number."""
    seed = random.seed

    @functools.wraps(seed)
    def seeded(a: Any = None, *args: Any, **named: Any) -> None:
        seed(operator.index(a) if hasattr(a, "__index__") else a, *args, **named)

    setattr(random, seed.__name__, seeded)


def _with_value(path: str, module: ModuleType) -> None:
    """Let a setting of a dataclass that is None have its default."""
    kind, _, name = path.partition(".")
    owner = getattr(module, kind)
    prepare = owner.__post_init__

    @functools.wraps(prepare)
    def prepared(settings: Any) -> None:
        if getattr(settings, name) is None:
            setattr(settings, name, getattr(owner, name))
            package = installed_version(module.__name__.partition(".")[0])
            _texts[f"{package} takes no {name}=None of {kind}: it is {getattr(owner, name)}"] = None
        prepare(settings)

    owner.__post_init__ = prepared


def _without_keyword_of_users(path: str) -> None:
    """Let a class of the user's not be given an argument that installed packages pass since another version."""
    qualname, _, keyword = path.rpartition(".")
    owner, _, name = qualname.rpartition(".")
    build = builtins.__build_class__

    def change(kind: Any) -> None:
        function = vars(kind).get(name)
        if inspect.isfunction(function) and is_users(inspect.unwrap(function).__code__.co_filename):
            setattr(kind, name, without(function))

    def without(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*arguments: Any, **named: Any) -> Any:
            named.pop(keyword, None)
            return function(*arguments, **named)

        _texts[f"{qualname} is not given {keyword}, which an installed package of another version passes"] = None
        return call

    def built(body: Any, /, *arguments: Any, **named: Any) -> Any:
        kind = build(body, *arguments, **named)
        if getattr(kind, "__qualname__", "") == owner:
            change(kind)
        return kind

    for module in list(sys.modules.values()):
        if is_users(file_of(module) or "<") and isinstance(kind := vars(module).get(owner), type):
            change(kind)
    builtins.__build_class__ = built


def _parsed(text: str) -> Any:
    with suppress(ValueError):
        return json.loads(text)
    return text


def _let_the_later_option_count() -> None:
    """Let parsers take an option a second time, and a parser of dataclasses find its value taken by the first."""
    container: Any = argparse._ActionsContainer
    namespace: Any = argparse.Namespace
    container._handle_conflict_error = container._handle_conflict_resolve

    def __delattr__(self: argparse.Namespace, name: str) -> None:  # noqa: N807 -- it stands for it
        vars(self).pop(name, None)

    namespace.__delattr__ = __delattr__


def _with_optional_arguments(_name: str, module: Any) -> None:
    """Let parsers call the group of their options as they did before Python 3.10."""
    init = module.ArgumentParser.__init__

    @functools.wraps(init)
    def __init__(self: argparse.ArgumentParser, *arguments: Any, **named: Any) -> None:  # noqa: N807 -- it stands for it
        init(self, *arguments, **named)
        self._optionals.title = "optional arguments"

    module.ArgumentParser.__init__ = __init__


def _without_screen(_name: str, module: Any) -> None:
    """Let matplotlib draw as it does on a machine without a screen."""
    module.use = lambda *_arguments, **_named: None


def _without_option(words: Sequence[str], amendment: Amendment) -> list[str]:
    """Return a command line in which an option that the parser no longer has is another one, or is left out."""
    option, kind = amendment.owner, amendment.name
    place = next((i for i, word in enumerate(words) if word.partition("=")[0] == option), None)
    if place is None:
        return list(words)
    _, has_value, value = words[place].partition("=")
    end = place + 1
    if not has_value and end < len(words) and not words[end].startswith("--"):
        value, end = words[end], end + 1
    if kind.startswith("--") or not kind:
        instead = [f"{kind}={value}"] if kind else []
    else:
        now = ARGUMENTS[kind].get(option.removeprefix("--"), Argument())
        instead = [f"--{now.name}", now.value.format(value)] if now.name else []
    what = f"is taken as {' '.join(instead)}" if instead else "is left out"
    _texts[f"the script does not have the option {' '.join(words[place:end])} with what is installed: it {what}"] = None
    return [*words[:place], *instead, *words[end:]]


_AT_IMPORT: dict[str, Callable[[str, Any], None]] = {
    "name": _put_names,
    "attribute": _put_attribute,
    "keyword": _without_keyword,
    "positional": _without_positional,
    "by_name": _with_names,
    "keys": _without_keys,
    "default": _with_default,
    "none": _with_value,
    "config": with_paths_of_configs,
    "hparams": with_settable_hparams,
    "hook": without_hook,
    "accelerator": with_strategy,
    "strategy": with_usual_strategy,
    "task": with_tasks,
    "settings": with_settings_as_arguments,
    "devices": with_one_device,
    "optimizers": with_several_optimizers,
    "assertion": without_assertion,
    "loader_index": with_index_of_loader,
    "model": with_former_model,
    "spectra": with_real_spectra,
    "strings": _with_any_values,
    "ragged": _with_ragged_arrays,
    "sanity": without_sanity_check,
    "seed": _with_numbers_as_seeds,
    "abstract": _without_abstract_methods,
    "mutable": _with_objects_as_defaults,
    "groups": _with_optional_arguments,
    "screen": _without_screen,
    "yaml": _with_loader,
}
"""Changes of a module as soon as it is imported, by kind."""
_AT_ONCE: dict[str, Callable[[Amendment], None]] = {
    "module": lambda amendment: _find_gone(amendment.owner),
    "keyword": _leave_keyword_out,
    "conflict": lambda _amendment: _let_the_later_option_count(),
    "load": _load_all,
    "variable": _set_variables,
    "launcher": _set_variables,
    "option": _leave_option_out,
    "word": _fill_in,
    "hidden": _put_first,
    "broken": lambda amendment: stand_in_for_broken(amendment.owner, amendment.name),
}
"""Changes that nothing has to be imported for, by kind."""
_SAID = {
    "conflict": "two arguments are called {}, one of them an installed package's: the later one counts",
    "loader_index": "Lightning gives {} no number of the loader any more: it is 0",
    "spectra": "torch.stft gives pairs of real numbers where it is not told, as in PyTorch 1",
    "strings": "columns of texts take other values, too, as before pandas 3",
    "ragged": "rows of different lengths are an array of objects, as before NumPy 1.24",
    "model": "timm has no model {}: it is the one that was called so",
    "hook": "Lightning has no hook {}, which ran when an epoch was over: it is left out",
    "accelerator": "Lightning has no accelerator {}: it is taken as the strategy",
    "strategy": "Lightning takes no strategy {}: it is taken as the usual one",
    "task": "metrics of torchmetrics need no task, as before version 0.11: without classes they measure nothing",
    "settings": "trl's SFTTrainer takes its settings as arguments, as before version 0.20",
    "devices": "Lightning's Trainer is to use the GPUs {}: there is one of them",
    "optimizers": "Lightning trains with several optimizers, one after the other, as before version 2.0",
    "config": "hydra takes the path of a config, and a class with its params, as before version 1.0",
    "hparams": "Lightning lets a model be given its hparams, as before version 1.0",
    "folder": "the folder {} is not there, in which the script writes: it is made, and others, too",
    "variable": "the environment variable {} is not set: it is {}",
    "ranks": "the script wants several GPUs: it is the first rank of {}",
    "launcher": "the environment variable {} is not set: it and others are as a launcher sets them",
    "assertion": "an assertion on unknown values, or on a version, is taken to hold: line {} of a module of the user's",
    "hidden": "a package of the project in {} is taken, which an installed one of its name hides",
    "abstract": "classes that derive from {} may lack methods that it has no body for, as before",
    "seed": "random.seed takes a number of NumPy as the int that it is, as before Python 3.11",
    "yaml": "yaml.load takes its FullLoader where none is named, as before PyYAML 6",
    "screen": "matplotlib draws without a screen, whatever the script asks for",
    "groups": 'a parser calls its options "optional arguments", as before Python 3.10',
    "mutable": "a field of a dataclass may have an object as its default, as before Python 3.11",
    "sanity": "Lightning's check of validation before the training fails here: it is left out",
    "load": "torch.load loads all that is in a checkpoint, as before PyTorch 2.6",
}
"""Texts of changes that are made whatever the program uses."""
