"""Inputs that are no tensor but hold several: dictionaries, objects with attributes, lists.

The code of `forward` says which entries it reads; an entry that it reads elsewhere is learnt from the error of a trial.
"""

import ast
import inspect
import math
import re
import textwrap
from collections.abc import Iterator
from dataclasses import replace

from torch import Tensor, nn

from memlint.base.frames import line_of, text_of
from memlint.targets.workload import BATCH, CONSTANT, InputSpec
from memlint.workloads.constructor_values import parameters
from memlint.workloads.guess.forward_names import guess_input
from memlint.workloads.guess.layers import entry_layers, input_of
from memlint.workloads.guess.trial_forward import Trial
from memlint.workloads.model_sizes import ModelSizes
from memlint.workloads.name_table import LABELS, NUM_BOXES, OF_GRAPHS
from memlint.workloads.receiving_layers import forward_code

_LARGEST_MAP = 4
"""Reduction of the image in the first of several feature maps; each further one has half the sides."""
_NO_TENSOR = re.compile(
    r"invalid data type 'str'|'Tensor' object has no attribute '(\w+)'|only supports Tensor or|too many indices for ten"
)
"""PyTorch's messages where code takes a tensor for a dictionary or an object."""
_OF_TENSORS = re.compile(r"(?i)\blist\[(torch\.)?Tensor\]")
_OF_OBJECTS = re.compile(r"(?i)\blist\[(typing\.)?dict\[str, (torch\.)?Tensor\]\]")
_NAMED_KEY = re.compile(r"\ban? ['\"]?(\w+)['\"]? key\b")
"""Phrase of a message about an entry that is not there."""
_KEY = re.compile(r"\[['\"](\w+)['\"]\]|\.get\(['\"](\w+)|['\"](\w+)['\"] in\b")


def entries(model: nn.Module, spec: InputSpec, sizes: ModelSizes) -> tuple[InputSpec, ...]:
    """Return the tensors of the list that `forward` takes under the name of `spec`: that alone if it takes no list.

    It is a list if the code goes over it and counts it, or beside a list of layers: these then say what each tensor is.
    """
    lists = [each for each in model.modules() if isinstance(each, nn.ModuleList) and len(each) > 1]
    goes_over, counts = _uses_as_list(model, spec.name)
    if not (goes_over or counts) or not ((goes_over and counts) or lists):
        return (spec,)
    are_maps = lists and len(spec.shape) == 4
    first = [next(iter(entry_layers(each)), ("", each))[1] for each in (lists[0] if are_maps else ())]
    taken = [input_of(f"{spec.name}.{place}", layer, sizes) for place, layer in enumerate(first)]
    if not taken or any(each is None or len(each.shape) != 4 for each in taken):
        return (replace(spec, name=f"{spec.name}.0"),)
    return tuple(_as_map(each, place) for place, each in enumerate(taken) if each is not None)


def of_batch_items(model: nn.Module, parameter: inspect.Parameter, spec: InputSpec) -> tuple[InputSpec, ...]:
    """Return the tensors of the list with an entry per item of the batch that an annotation speaks of.

    `list[Tensor]` are the items of `spec`, `list[dict[str, Tensor]]` the objects in an image. Without such a word it is
    `spec` alone.
    """
    annotation = str(parameter.annotation)
    if parameter.annotation is parameter.empty:
        annotation = _type_comments(model).get(parameter.name, "")
    if _OF_TENSORS.search(annotation) and spec.shape[:1] == (BATCH,) and len(spec.shape) > 1:
        return (replace(spec, name=f"{spec.name}[]", shape=spec.shape[1:]),)
    if _OF_OBJECTS.search(annotation):
        boxes = InputSpec(f"{spec.name}[].boxes", (NUM_BOXES, 4), low=0, counted=True)  # from (0, 1) to (2, 3)
        return (boxes, InputSpec(f"{spec.name}[].labels", (NUM_BOXES,), "int64", low=1, high=2))
    return (spec,)


def _type_comments(model: nn.Module) -> dict[str, str]:
    """Return the types of parameters that `forward` states as `# type: (List[Tensor], Tensor) -> Tensor`."""
    try:
        source = textwrap.dedent(inspect.getsource(type(model).forward))
        (function,) = ast.parse(source, type_comments=True).body
        comment = getattr(function, "type_comment", None)
        types = ast.parse(comment, mode="func_type").argtypes if comment else []
    except (OSError, TypeError, SyntaxError, ValueError):
        return {}
    return dict(zip(parameters(model.forward), map(ast.unparse, types), strict=False))


def _as_map(spec: InputSpec, place: int) -> InputSpec:
    """Return the feature map at a place of a pyramid over an image."""
    sides = (max(1, side // (_LARGEST_MAP << place)) for side in spec.shape[2:] if isinstance(side, int))
    return replace(spec, shape=(*spec.shape[:2], *sides))


def _uses_as_list(model: nn.Module, name: str) -> tuple[bool, bool]:
    """Return True if `forward` goes over the parameter, and True if it counts it or takes items at a variable."""
    every = list(ast.walk(forward_code(type(model))))
    stored = (each for each in every if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store))
    last = min((each.lineno for each in stored if each.id == name), default=math.inf)
    nodes = [each for each in every if getattr(each, "lineno", 0) <= last]  # then the name stands for something else
    loops = [node.iter for node in nodes if isinstance(node, ast.For | ast.comprehension)]
    over = [part for each in loops for part in ([each] if isinstance(each, ast.Name) else getattr(each, "args", ()))]
    goes_over = any(isinstance(each, ast.Name) and each.id == name for each in over)
    counted = any(isinstance(node, ast.Call) and ast.unparse(node) == f"len({name})" for node in nodes)
    taken = [node.slice for node in nodes if isinstance(node, ast.Subscript) and ast.unparse(node.value) == name]
    return goes_over, counted or any(isinstance(each, ast.Name) for each in taken)


def learnt(trial: Trial, sizes: ModelSizes) -> Iterator[tuple[InputSpec, ...]]:
    """Yield the inputs of a trial with the entry that its code looked for and did not find in an input."""
    error = trial.error
    owners = dict.fromkeys(spec.name.partition(".")[0] for spec in trial.specs if re.search(r"\.(?!\d)", spec.name))
    if isinstance(error, KeyError | AttributeError) and owners and error.args and str(error.args[0]).isidentifier():
        yield from (_with_entry(trial.specs, owner, str(error.args[0]), sizes) for owner in owners)
    elif isinstance(error, ValueError) and owners and (named := _NAMED_KEY.search(text_of(error))) is not None:
        yield from (_with_entry(trial.specs, owner, named[1], sizes) for owner in owners)
    elif error is not None and (missed := _NO_TENSOR.search(text_of(error))) is not None:
        keys = [missed[1]] if missed[1] else ["".join(groups) for groups in _KEY.findall(line_of(error))]
        tensors = [spec.name for spec in trial.specs if spec.dtype != CONSTANT and "." not in spec.name]
        for owner in sorted(tensors, key=lambda name: name not in trial.inputs_in_scope):
            if keys and not hasattr(Tensor, keys[0]):
                goes_over = re.search(rf"(\w+)\[['\"]{re.escape(keys[0])}\b.*\bfor \1 in {owner}\b", line_of(error))
                yield _with_entry(trial.specs, f"{owner}[]" if goes_over else owner, keys[0], sizes)


def _with_entry(specs: tuple[InputSpec, ...], owner: str, key: str, sizes: ModelSizes) -> tuple[InputSpec, ...]:
    """Return `specs` with another entry of the input `owner`, which is no tensor itself.

    An entry that makes the input a graph changes what the others are.
    """
    known = {spec.name.rpartition(".")[2]: spec for spec in specs if spec.name.startswith(f"{owner}.")}
    names = frozenset({*known, key})

    def guess(name: str) -> InputSpec:
        parameter = inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        is_image = owner.endswith("[]")  # an entry of the list, with its objects
        beside = names | {"boxes"} if is_image else names
        spec = replace(guess_input(parameter, sizes.model, beside, sizes), name=f"{owner}.{name}")
        return replace(spec, shape=(NUM_BOXES, *(() if name in LABELS else spec.shape[2:]))) if is_image else spec

    kept = [spec for spec in specs if spec.name != owner.removesuffix("[]") and spec not in known.values()]
    return (*kept, *(guess(name) if key in OF_GRAPHS else spec for name, spec in known.items()), guess(key))


def fields(model: nn.Module, name: str) -> tuple[str, ...]:
    """Names under which the code of `forward` reads its parameter `name`: keys of a dictionary, or attributes.

    So batches of dictionaries and of TensorDict are read, and PyG's `data.x` and `data.edge_index`. What every tensor
    has is none of them, nor are counts.
    """
    nodes = list(ast.walk(forward_code(type(model))))
    called = [node.func for node in nodes if isinstance(node, ast.Call)]
    keys: list[object] = []
    for node in nodes:
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=owner), attr="get"), args=[ast.Constant(value=key), *_]):
                keys += [key] if owner == name else []
            case ast.Subscript(value=ast.Name(id=owner), slice=ast.Constant(value=key), ctx=ast.Load()):
                keys += [key] if owner == name else []
            case ast.Attribute(value=ast.Name(id=owner), attr=key, ctx=ast.Load()) if node not in called:
                keys += [key] if owner == name else []
    of_all = (key for key in dict.fromkeys(keys) if isinstance(key, str) and not hasattr(Tensor, key))
    return tuple(key for key in of_all if not key.startswith("num_") and key != "batch_size")


def unpacked(model: nn.Module, name: str) -> tuple[str, ...]:
    """Names that the code of `forward`, in the mode of `model`, takes its parameter `name` apart into."""
    tree = forward_code(type(model))
    skipped = {
        each
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("self.training", "not self.training")
        for each in (node.orelse if (ast.unparse(node.test) == "self.training") is model.training else node.body)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and node not in skipped and ast.unparse(node.value) == name:
            target = node.targets[0]
            if isinstance(target, ast.Tuple) and all(isinstance(each, ast.Name) for each in target.elts):
                return tuple(each.id for each in target.elts if isinstance(each, ast.Name))
    return ()
