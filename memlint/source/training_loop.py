"""Settings of a step in a project's own training loop: batch, image and text sizes, optimizer, loss, dtype."""

import ast
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from memlint.source.call_sites import CallSite, Where, function_name, is_training, kind_of, may_train
from memlint.source.calls import argument, called
from memlint.source.expressions import Values
from memlint.source.files import Unreadable
from memlint.source.project import Project
from memlint.source.project_files import EVALUATES, ProjectFiles
from memlint.source.scopes import Scope, calls_backward, scopes
from memlint.source.text import Source, dotted_name
from memlint.source.values import Unknown

OPTIMIZERS = {
    "SGD": "sgd", "Adam": "adam", "AdamW": "adamw", "Adamax": "adamax", "NAdam": "nadam", "RAdam": "radam",
    "Adagrad": "adagrad", "Adadelta": "adadelta", "Adafactor": "adafactor", "RMSprop": "rmsprop", "Rprop": "rprop",
    "ASGD": "asgd", "SparseAdam": "sparse-adam", "Muon": "muon",
}  # fmt: skip
"""memlint's names of PyTorch's optimizers."""
_LOSSES = {
    "CrossEntropyLoss": "cross_entropy", "NLLLoss": "nll_loss", "BCEWithLogitsLoss": "binary_cross_entropy_with_logits",
    "BCELoss": "binary_cross_entropy", "MSELoss": "mse_loss", "L1Loss": "l1_loss", "SmoothL1Loss": "smooth_l1_loss",
    "HuberLoss": "huber_loss",
}  # fmt: skip
"""Losses of torch.nn, and the equivalent functions of torch.nn.functional."""
_TRAINERS = frozenset(("Accelerator", "Fabric", "Trainer"))
"""Classes of accelerate and Lightning that are told the precision of a step."""
_PRECISIONS = {
    **dict.fromkeys(("bf16-mixed", "bf16"), "bf16-amp"),
    **dict.fromkeys(("16-mixed", "16", "fp16"), "fp16-amp"),
    "bf16-true": "bfloat16",
    "16-true": "float16",
}
"""Precisions that they know, as the dtype of a Workload."""
_RESIZES = frozenset(
    {"RandomResizedCrop", "RandomCrop", "CenterCrop", "Resize", "FixScaleCrop", "ExtRandomCrop", "Scale"}
)
_SHORTEST_SIDES = frozenset({"RandomResize", "RandomShortestSize", "ResizeShortestEdge"})
"""Transforms of detection that choose the length of the shortest side among several: the largest counts."""
_SHORTEST_SIDE = re.compile(r"(min|short|shorter|shortest)_?(side|size|edge)")
_LONGEST_SIDE = re.compile(r"(max|long|longer|longest)_?(side|size|edge)")
_OF_DATA = re.compile(r"data|loader|transform|augment|coco|voc", re.IGNORECASE)
"""Pattern in the path of a module that prepares images."""
_DATASETS = {"CIFAR10": 32, "CIFAR100": 32, "SVHN": 32, "MNIST": 28, "FashionMNIST": 28, "KMNIST": 28, "EMNIST": 28}
"""Image sizes of torchvision's datasets whose images all have one size."""
_NAMES_DATA = re.compile(r"data|load", re.IGNORECASE)
"""Pattern in the name of a function that gets a data set by its name, or makes one."""
_PATCH = re.compile(r"(patch|crop|image|img|input)_?(size|shape)", re.IGNORECASE)
"""Names under which it is told the size of its images."""
_SETTINGS = re.compile(r"(conf|train|param|option|setting|recipe|args)[^/\\]*([/\\][^/\\]*)?$", re.IGNORECASE)
"""Files whose name, or that of their folder, says that they are settings."""
_BATCH = re.compile(
    r"((per_)?(gpu|device)_|local_|micro_?|mini_?)?(train_|training_)?(micro_?)?(batch(_?size)?|bs|bsz)(_?train)?(_per_(gpu|device))?"
    r"|(samples|images|imgs)_per_gpu",
    re.IGNORECASE,
)
_GLOBAL_BATCH = re.compile(r"((total|global|effective)_(train_)?batch(_size)?|ims_per_batch)", re.IGNORECASE)
"""Names of the batch of all GPUs together, of which one is assumed."""
_IMAGE = re.compile(r"(img|image|crop|input|train|gt)_?(size|shape|dim|resolution|sz)|imsize|resolution", re.IGNORECASE)
_LENGTH = re.compile(
    r"(max_)?(seq|sequence|context|text)_?(len|length|size)|tgt_len|block_size|bptt|n_ctx|l_max|(pred_)?horizon",
    re.IGNORECASE,
)
_NUM_POINTS = re.compile(r"n(um)?_?points?", re.IGNORECASE)
_SIZES, _MANY = range(8, 4097), range(8, 2**20)
_MOST_SEEN = 4
"""Maximum number of other values that a guess names."""
_OPTIONS = (
    ("batch", _BATCH, range(1, 2**15 + 1)),  # larger ones count tokens or frames
    ("global_batch", _GLOBAL_BATCH, range(1, 8193)),
    ("image_size", _IMAGE, _SIZES),
    ("image_height", re.compile(r"(img|image|input)_?(h|height)", re.IGNORECASE), _SIZES),
    ("image_width", re.compile(r"(img|image|input)_?(w|width)", re.IGNORECASE), _SIZES),
    ("length", _LENGTH, _MANY),
    ("num_points", _NUM_POINTS, _MANY),
    ("segment_size", re.compile(r"segment_?(size|length)", re.IGNORECASE), _MANY),
    ("hop_length", re.compile(r"hop_?(size|length|samples)", re.IGNORECASE), _MANY),
)
"""Sizes that a loop may read from its settings, their names there, and their plausible values."""


class LoopSetting(NamedTuple):
    """A setting of the loop under memlint's name, with the text that states it and its place."""

    key: str
    """One of `batch`, `optimizer`, `loss`, `dtype`, `length`, or another of `_OPTIONS`."""
    value: object
    text: str
    path: str
    line: int
    is_guess: bool = False
    """True if it stands where nothing builds the model, and others beside it."""


def sole_loop(target: Path, project: Project) -> dict[str, LoopSetting]:
    """Return the settings in the only training script that imports the file `target`, or a package it is in.

    Those of the file itself come before if it trains, and otherwise after.
    """
    scripts, own = list(training_scripts(target, project)), next(iter(project.files.code(target)), None)
    settings = _in_source(scripts[0], project) if len(scripts) == 1 else {}
    stated = {} if own is None else _in_source(own, project)
    return {**settings, **stated} if own is not None and "backward" in own.words else {**stated, **settings}


def training_scripts(target: Path, project: Project) -> Iterator[Source]:
    """Yield the training scripts that import the file, or a package it is in."""
    module = target.relative_to(project.root).with_suffix("").parts
    for source in project.files.sources(module, may_train):
        is_training = Path(source.path) != target and kind_of(source, project.root) is Where.TRAINING
        if is_training and any(_stands_for(name, module) for name in _imported(source)):
            yield source


def side_of_dataset(name: str) -> int | None:
    """Return the side of the images of a data set that a text names, such as `cifar-10`; None if it names none."""
    plain = re.sub(r"[\W_]", "", name).upper()
    return next((side for known, side in _DATASETS.items() if known.upper() == plain), None)


def nearest_batch(target: Path, names: Collection[str], project: Project) -> LoopSetting | None:
    """Return the batch size in a config that has one of `names`, in a script that imports the file, in any config.

    For a model of the file `target` whose own loop states none: the first of several counts, as a guess that names the
    others. JSON holds results and data as often as settings: of what names nothing of the model, its name or folder
    has to say that it is settings.
    """
    configs = [str(path) for path in project.files.configs if not EVALUATES.search(path.stem)]
    naming = [each for each in configs if project.files.mentions(Path(each), names)]
    others = [each for each in configs if not each.endswith(".json") or _SETTINGS.search(each)]
    places = (
        (sizes_in_config(path, project) for path in naming),
        (_in_source(source, project) for source in training_scripts(target, project)),
        (sizes_in_config(path, project) for path in others),
    )
    stated = ([each for each in map(batch_of, place) if each is not None] for place in places)
    found = next(filter(None, stated), [])
    if not found:
        return None
    first, *rest = found
    seen = {each.value: f"{each.value} in {Path(each.path).name}" for each in rest if each.value != first.value}
    shown = ", ".join([*seen.values()][:_MOST_SEEN])
    guess = first._replace(text=f"{first.text}: a guess, as others are stated too ({shown})", is_guess=True)
    return guess if seen else first


def batch_of(settings: Mapping[str, LoopSetting]) -> LoopSetting | None:
    """Return the batch size of one GPU, or that of all together."""
    batch = settings.get("batch", settings.get("global_batch"))
    return None if batch is None else batch._replace(key="batch")


def loop_of_files(paths: Sequence[Path], root: Path) -> dict[str, LoopSetting]:
    """Return the settings on which those of `paths` below `root` agree that train; the first file decides alone."""
    sources = []
    for path in paths:
        with suppress(Unreadable):
            sources.append(Source.read(path))
    if not sources:
        return {}
    project = Project(ProjectFiles(root, paths[0]))
    of_each = [_in_source(each, project) for each in sources if is_training(each)]
    settings: dict[str, LoopSetting] = {}
    for key in dict.fromkeys(key for each in of_each for key in each):
        stated = [each[key] for each in of_each if key in each]
        is_decided = stated[0].path == str(paths[0]) or len({each.value for each in stated}) == 1
        if is_decided:
            settings[key] = stated[0]
    return settings


def _imported(source: Source) -> Iterator[tuple[str, ...]]:
    """Yield dotted names, split at dots, of modules that the file may import."""
    for node in source.statements:
        if isinstance(node, ast.Import):
            yield from (tuple(name.name.split(".")) for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = tuple(node.module.split(".")) if node.module else ()
            yield above
            yield from ((*above, name.name) for name in node.names)


def _stands_for(name: tuple[str, ...], module: tuple[str, ...]) -> bool:
    """Return True if it is the module with the given path, or one of the packages it is in, from any folder."""
    return bool(name) and any(module[start : start + len(name)] == name for start in range(len(module)))


def training_loop(site: CallSite, project: Project) -> dict[str, LoopSetting]:
    """Return the settings in the code around a call, by key, and the further ones in the code that uses it.

    For a call in a config, the settings are those of the config.
    """
    settings = sizes_in_config(site.path, project) if site.where is Where.CONFIG else {}
    if site.source is not None:
        settings |= _in_source(site.source, project, site.line)
        for source in project.files.code(Path(site.path)) if site.where is Where.DOCUMENT else ():
            settings = {**_in_source(source, project), **settings}
        callers = (scope.source for scope, _call in project.calls_of(site.inside, site.path)) if site.inside else ()
        others = (each for each in callers if each.path != site.path and is_training(each))
        caller = next(others, None)  # another script would say how something else is trained
        settings = settings if caller is None else {**_in_source(caller, project), **settings}
    return settings


def sizes_in_config(path_text: str, project: Project) -> dict[str, LoopSetting]:
    """Return the sizes and the optimizer anywhere in a config of the project; empty if the path is not that of one."""
    settings: dict[str, LoopSetting] = {}
    path, values = project.files.config(path_text) or (Path(), {})
    for mapping in _for_training(values):
        for name, value in mapping.items():
            key = _kind("segment_size" if name == "num_samples" and _is_of_sound(mapping) else str(name), value)
            parts = mapping.get("subdivisions", 1) if key == "batch" else 1  # Darknet: of a batch, one after another
            if str(name).startswith("gt_"):  # what super-resolution makes of a smaller image
                parts = values.get("scale", 1)
            if key and isinstance(value, int) and isinstance(parts, int):
                place, line = project.files.place_of(path, str(name))
                size = max(value // max(parts, 1), 1)
                settings.setdefault(key, LoopSetting(key, size, f"{name}: {value}", str(place), line))
            elif "optim" in str(name) and isinstance(value, Mapping) and (kind := _optimizer_in(value)):
                place, line = project.files.place_of(path, str(name))
                text = f"{name}: {OPTIMIZERS[kind]}"
                momentum = "-momentum" if kind == "SGD" and value.get("momentum") else ""
                found = LoopSetting("optimizer", f"{OPTIMIZERS[kind]}{momentum}", text, str(place), line)
                settings.setdefault("optimizer", found)
    return settings


def _is_of_sound(mapping: Mapping[str, Any]) -> bool:
    """Return True for settings with a rate of samples: a number of samples beside it is a length."""
    return not {"sampling_rate", "sample_rate"}.isdisjoint(mapping)


def _optimizer_in(mapping: Mapping[str, Any]) -> str:
    """Return the class of torch.optim that a mapping of a config names; empty without one."""
    names = (str(mapping.get(key, "")).rpartition(".")[2] for key in ("_target_", "class_path", "type", "name"))
    return next((name for name in names if name in OPTIMIZERS), "")


def _for_training(value: object) -> Iterator[Mapping[str, Any]]:
    """Yield the mappings within a config, outer before inner, without those for evaluation and the rows of a table."""
    if isinstance(value, Mapping):
        yield value
    rows = enumerate(value) if isinstance(value, list) and not _is_table(value) else ()
    inner: Iterable[tuple[object, Any]] = value.items() if isinstance(value, Mapping) else rows
    for name, each in inner:
        if not EVALUATES.search(str(name).lower()):
            yield from _for_training(each)


def _is_table(entries: Sequence[object]) -> bool:
    """Return True for several mappings with the same keys: records, such as results, and no settings."""
    keys = [frozenset(each) for each in entries if isinstance(each, Mapping)]
    return len(keys) == len(entries) > 2 and len(set(keys)) == 1


def _kind(name: str, value: object) -> str:
    """Return the key of a size with this name; empty if there is none, or if the value is not plausible."""
    sizes = (key for key, pattern, sizes in _OPTIONS if pattern.fullmatch(name) and value in sizes)
    return next(sizes, "") if type(value) is int else ""


def _in_source(source: Source, project: Project, built: int = 0) -> dict[str, LoopSetting]:
    """Return the settings in one file; the first that applies by default counts, and a loss only if it is the sole one.

    The model is `built` in that line, if it is in this file.
    """
    values = Values(source, project)
    settings: dict[str, LoopSetting] = {}
    losses: set[object] = set()
    for scope in scopes(source):
        if scope.evaluates:
            continue
        for call in scope.calls:
            for key, value in _settings(call, scope, values):
                if not values.runs(call, scope) or (key == "loss" and not _trains(scope, built)):
                    continue
                losses |= {value} if key == "loss" else set()
                text = " ".join(ast.unparse(call).split())
                short = text if len(text) <= 60 else f"{text[:57]}..."
                _put(settings, LoopSetting(key, value, short, source.path, call.lineno))
    if len(losses) > 1:  # their sum, or one of them: the text alone does not decide
        settings.pop("loss", None)
    of_data = _of_data(source, project) if source.path.endswith(".py") else ()  # a document has many blocks
    for each in (*_options(source, project), *of_data):
        if each.key:
            _put(settings, each)
    return settings


def _put(settings: dict[str, LoopSetting], each: LoopSetting) -> None:
    """Add a setting unless it, or for image sizes another one, exists."""
    sides = {"image_height", "image_width"}
    others = {"image_size"} if each.key in sides else sides if each.key == "image_size" else set()
    if others.isdisjoint(settings):
        settings.setdefault(each.key, each)


def _trains(scope: Scope, built: int) -> bool:
    """Return True if the function contains the step of the model that is built in a line, or a necessary part of it."""
    makes = scope.owner if scope.owner is not None and scope.name == "__init__" else scope.node
    if not scope.name or scope.name in ("main", "training_step") or calls_backward(makes):
        return True
    return any(call.lineno == built for call in scope.calls)


def _of_data(source: Source, project: Project, depth: int = 2) -> Iterator[LoopSetting]:
    """Yield sizes in the modules that a training script imports to load its data, and in their imports."""
    for path in _files_imported(source, project.root):
        if _OF_DATA.search(str(path.relative_to(project.root))):
            with suppress(Unreadable):
                other = Source.read(path)
                yield from _sizes_of_data(other, project)
                yield from _of_data(other, project, depth - 1) if depth > 1 else ()


def _sizes_of_data(source: Source, project: Project) -> Iterator[LoopSetting]:
    """Yield sizes in functions of the file, settings first; code outside of functions only tries it out."""
    values = Values(source, project)
    yield from (each for each in _options(source, project) if each.key in ("batch", "image_size", "num_points"))
    for scope in scopes(source):
        if isinstance(scope.node, ast.Module):
            continue
        names = [each.arg for each in scope.node.args.args]
        owner = scope.owner.name if scope.owner is not None else scope.name
        defaults = dict(zip(reversed(names), reversed(scope.node.args.defaults), strict=False))
        longest = next((default for name, default in defaults.items() if _LONGEST_SIDE.fullmatch(name)), None)
        for name, default in defaults.items():
            size = _value(default, scope, values)
            if "resiz" in owner.lower() and _SHORTEST_SIDE.fullmatch(name) and type(size) is int and size in _SIZES:
                for key, side in _sides(size, _value(longest, scope, values)):
                    yield LoopSetting(key, side, f"{owner} with {name}={size}", source.path, default.lineno)
            if _NUM_POINTS.fullmatch(name) and type(size) is int and size in _MANY:
                yield LoopSetting("num_points", size, f"{owner} with {name}={size}", source.path, default.lineno)
        for call in scope.calls if not scope.evaluates else ():
            for key, size in _image_sizes(call, scope, values):
                if values.runs(call, scope):
                    yield LoopSetting(key, size, " ".join(ast.unparse(call).split()), source.path, call.lineno)


def _files_imported(source: Source, root: Path) -> Iterator[Path]:
    """Yield the files of the project that `source` imports from."""
    own = Path(source.path)
    above = [folder for folder in own.parents if folder.is_relative_to(root)]
    for node in source.statements:
        if isinstance(node, ast.ImportFrom):
            parts = node.module.split(".") if node.module else []
            names = [[*parts, each.name] for each in node.names] + [parts]
            folders = [own.parents[node.level - 1]] if node.level else above
        elif isinstance(node, ast.Import):
            names, folders = [each.name.split(".") for each in node.names], above
        else:
            continue
        places = (folder.joinpath(*each) for folder in folders for each in names if each)
        files = (file for place in places for file in (place.with_suffix(".py"), place / "__init__.py"))
        yield from (file for file in dict.fromkeys(files) if file.is_file() and file.is_relative_to(root))


def _settings(call: ast.Call, scope: Scope, values: Values) -> Iterator[tuple[str, object]]:
    name = function_name(call, values, scope)
    if name in OPTIMIZERS and "optim" in (values.source.qualified_name(call.func) or ast.unparse(call.func)):
        kind = OPTIMIZERS[name]
        momentum = argument(call, "momentum", 2)
        if kind == "sgd" and momentum is not None and _value(momentum, scope, values) != 0:
            kind = "sgd-momentum"  # also if its value is not known: it takes a buffer for each weight
        yield "optimizer", kind
    elif (loss := _loss(values.source.qualified_name(call.func) or "")) is not None:
        yield "loss", loss
    elif (name == "DataLoader" or name.endswith("Sampler")) and not _is_evaluation(call, scope):
        place = 1 if name in ("DataLoader", "BatchSampler") else None
        size = _value(argument(call, "batch_size", place), scope, values)
        if type(size) is int and size > 0:
            yield "batch", size
    elif name == "autocast" and not _is_in_evaluation(call, scope) and _is_enabled(call, scope, values):
        dtype = argument(call, "dtype", 1)
        name = dotted_name(dtype) if dtype is not None else ""
        last = {each.rpartition(".")[2] for each in (name, str(_value(dtype, scope, values)))}
        if last.isdisjoint(("float32", "float")):  # a part that is kept out of autocast
            yield "dtype", "bf16-amp" if "bfloat16" in last else "fp16-amp"
    elif name in _TRAINERS:
        precision = _value(argument(call, "precision") or argument(call, "mixed_precision"), scope, values)
        known = _PRECISIONS.get(str(precision))
        yield from [] if known is None else [("dtype", known)]
    else:
        yield from _image_sizes(call, scope, values)
        if _NAMES_DATA.search(name) and not EVALUATES.search(name.lower()) and not _is_evaluation(call, scope):
            size = _value(argument(call, "batch_size"), scope, values)
            yield from [("batch", size)] if type(size) is int and size > 0 else ()


def _sides(shortest: int, longest: object) -> Iterator[tuple[str, int]]:
    """Yield landscape images of a shortest side, with their longest side if that is stated."""
    if type(longest) is int and longest in _SIZES:
        yield from (("image_height", shortest), ("image_width", longest))
    else:
        yield "image_size", shortest


def _image_sizes(call: ast.Call, scope: Scope, values: Values) -> Iterator[tuple[str, int]]:
    """Yield the largest height and width that a transform or dataset of torchvision gives images."""
    name = called(call)
    if name in _RESIZES and call.args:
        if (size := _square(_value(call.args[0], scope, values))) is not None:
            yield "image_size", size
    elif name in _SHORTEST_SIDES and call.args:
        sizes = _value(call.args[0], scope, values)
        if isinstance(sizes, list | tuple) and all(type(size) is int and size in _SIZES for size in sizes):
            yield from _sides(max(sizes), _value(argument(call, "max_size", 1), scope, values))
    elif name in _DATASETS and "datasets" in (values.source.qualified_name(call.func) or dotted_name(call.func)):
        yield "image_size", _DATASETS[name]
    elif _NAMES_DATA.search(dotted_name(call.func)):
        named = _value(call.args[0], scope, values) if call.args else None
        known = side_of_dataset(named) if isinstance(named, str) else None
        told = (each.value for each in call.keywords if _PATCH.fullmatch(each.arg or ""))
        stated = (_square(_value(each, scope, values)) for each in told)
        yield from (("image_size", side) for side in (known, *stated) if side is not None)


def _loss(name: str) -> str | None:
    """Return the class of torch.nn with this full name, or the one equivalent to a function of torch.nn.functional."""
    place, _, last = name.rpartition(".")
    if place not in ("torch.nn", "torch.nn.functional", "torch.nn.modules.loss"):
        return None
    return last if last in _LOSSES else next((kind for kind, function in _LOSSES.items() if function == last), None)


def _value(node: ast.expr | None, scope: Scope, values: Values) -> object:
    try:
        return None if node is None else values.of(node, scope)
    except Unknown:
        return None


def _is_enabled(call: ast.Call, scope: Scope, values: Values) -> bool:
    """Return True if the text enables autocast, as it does without an argument, or wherever there is a GPU."""
    name = values.source.qualified_name(call.func) or dotted_name(call.func)
    enabled = argument(call, "enabled", 0 if "cuda.amp" in name else 2)
    if enabled is None:
        return all(each.arg for each in call.keywords)  # `**settings` may say no
    value = _value(enabled, scope, values)
    if value is None:
        value = _by_default(enabled, scope)
    return value is True or (value is None and "cuda" in ast.unparse(enabled))


def _by_default(node: ast.expr, scope: Scope) -> bool | None:
    """Return the value of a flag, or of `not flag`, that the function has as a parameter; None without a default."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        value = _by_default(node.operand, scope)
        return None if value is None else not value
    if not isinstance(node, ast.Name) or isinstance(scope.node, ast.Module):
        return None
    given = scope.node.args
    known = [
        *zip(given.args[::-1], given.defaults[::-1], strict=False),
        *zip(given.kwonlyargs, given.kw_defaults, strict=True),
    ]
    values = (each.value for name, each in known if name.arg == node.id and isinstance(each, ast.Constant))
    return next((each for each in values if isinstance(each, bool)), None)


def _is_in_evaluation(node: ast.AST, scope: Scope) -> bool:
    """Return True for a part of a function that evaluates by its name, such as diffusers' `log_validation`."""
    above = scope.parents.get(node)
    is_one = isinstance(above, ast.FunctionDef) and EVALUATES.search(above.name.lower()) is not None
    return is_one or (above is not None and _is_in_evaluation(above, scope))


def _is_evaluation(call: ast.Call, scope: Scope) -> bool:
    """Return True if a loader is bound to a name for evaluation."""
    parent = scope.parents.get(call)
    targets = parent.targets if isinstance(parent, ast.Assign) else ()
    return any(re.search(r"val|test|eval|dev", dotted_name(target), re.IGNORECASE) for target in targets)


def _square(value: object) -> int | None:
    value = _side(value)
    return value if type(value) is int and value in _SIZES else None


def _side(value: object) -> object:
    """Return the side of a square image for its sides, perhaps behind its channels; anything else unchanged."""
    is_square = isinstance(value, list | tuple) and 2 <= len(value) <= 3 and value[-1] == value[-2]
    return value[-1] if is_square else value  # type: ignore[index]


def _literal(node: ast.expr) -> object:
    with suppress(ValueError):
        return ast.literal_eval(node)
    return None


def _options(source: Source, project: Project) -> Iterator[LoopSetting]:
    """Yield sizes in the settings that the code reads (`args.batch_size`), has an option for, or sets."""
    values, own = Values(source, project), project.options_of(source)
    for node in source.index.of(ast.Attribute, ast.Subscript):
        key = node.attr if isinstance(node, ast.Attribute) else getattr(node.slice, "value", None)
        if isinstance(key, str) and any(pattern.fullmatch(key) for _key, pattern, _sizes in _OPTIONS):
            with suppress(Unknown):
                how = "as its command line is shown" if key in own and own[key].is_typed else "by default"
                value = _side(values.of(node, None))
                yield LoopSetting(
                    _kind(key, value), value, f"{ast.unparse(node)}, {value} {how}", source.path, node.lineno
                )
    for name, option in own.items():
        value = _side(option.value)
        yield LoopSetting(_kind(name, value), value, f"option {name}", source.path, option.line)
    outside = frozenset(_run_as_script(source))
    for statement in source.index.of(ast.Assign):
        target = statement.targets[0]
        if isinstance(target, ast.Attribute) or (isinstance(target, ast.Name) and statement in outside):
            constant = _side(_literal(statement.value))
            name = dotted_name(target).rpartition(".")[2]
            text = " ".join(ast.unparse(statement).split())
            yield LoopSetting(_kind(name, constant), constant, text, source.path, statement.lineno)


def _run_as_script(source: Source) -> Iterator[ast.stmt]:
    """Yield the statements outside of functions; of a file that trains, those of `__main__` and of `main` too."""
    for statement in source.tree.body:
        yield statement
        is_main = isinstance(statement, ast.If) and "__name__" in ast.unparse(statement.test)
        if is_main or (isinstance(statement, ast.FunctionDef) and statement.name == "main"):
            # other code in a condition, or without a loop in the file, may only try it out
            yield from statement.body if is_training(source) else ()  # type: ignore[attr-defined]
