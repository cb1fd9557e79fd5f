"""Better guesses at a model's inputs, derived from a failed Trial."""

import ast
import inspect
import math
import re
from collections.abc import Iterator
from dataclasses import replace

from torch import nn

from memlint.accelerator.private import Convolution
from memlint.base.frames import line_of, text_of
from memlint.targets.workload import BATCH, CONSTANT, InputSpec
from memlint.workloads.constructor_values import parameters
from memlint.workloads.guess.assertions import asserted_equal, asserted_ranks
from memlint.workloads.guess.axes_in_code import axes
from memlint.workloads.guess.containers import learnt, of_batch_items
from memlint.workloads.guess.dimension_names import are_unknown
from memlint.workloads.guess.forward_names import guess_input
from memlint.workloads.guess.layers import AUDIO_LENGTH, PICTURES, VIDEO_SIZE, entry_layers, input_of
from memlint.workloads.guess.trial_forward import TRIAL_BATCH, Trial
from memlint.workloads.model_sizes import DEFAULT_LENGTH, ModelSizes
from memlint.workloads.name_table import LABELS, NUM_BOXES
from memlint.workloads.receiving_layers import forward_code

Specs = tuple[InputSpec, ...]

_NUM_POINTS = 1024
_COLOURS = 3
_FIRST = 3
"""Number of a module's first layers that may get its input."""

_MOST_BESIDE_PATCHES = 5
"""A class and four registers, as DINOv2 has them (Darcet et al., 2023)."""
_IMAGE_SIZES = (224, 32, 28, 64, 96, 128, 227, 256, 299, 384, 512)
_LENGTHS = (512, 256, 128, 64, 32, 16)
_UNPACK = re.compile(r"(?:values to unpack \(expected|input\.dim\(\) = \d+ is not equal to len\(dims\) =) (\d+)")
_MISMATCH = re.compile(r"size of tensor a \((\d+)\) must match the size of tensor b \((\d+)\)")
_PRODUCT = re.compile(r"\((\d+)x(\d+) and (\d+)x(\d+)\)|\[(\d+), (\d+)\] X \[(\d+), (\d+)\]")
_VIEW = re.compile(r"shape '\[([-\d, ]+)\]' is invalid for input of size (\d+)")
_RANGE = re.compile(r"Dimension out of range \(expected to be in range of \[-\d+, (\d+)\]")
_RANKS = re.compile(r"same number of dimensions: got (\d+) and (\d+)")
_BROADCAST = re.compile(r"broadcast|must match the size|expanded size of the tensor|shape of the mask")
_OUT_OF_BOUNDS = re.compile(r"index \d+ is out of bounds|index out of range")
_CONV_RANK = re.compile(r"\(batched\) input to conv(\d)d")
_REQUIRED = re.compile(r"missing \d+ required (?:positional|keyword-only) arguments?: (.*)")
_FLAG = re.compile(r"\b(?:if|elif|while|not|and|or)\s+(\w+)(?=\s*(?:$|[:)]|else\b|and\b|or\b))")
_LISTED = re.compile(r"\[(\d+(?:, *\d+)*)\]")
_NUMBER = re.compile(r"(?<![\d.])\d{1,5}(?![\d.])")
_WANTS_INTEGERS = re.compile(
    r"scalar types: Long|tensors used as indices must be|must be Long|dtype .*int64|Expected.*Long"
)
_OTHER_FLOATS = {
    "float64": re.compile(r"\b[Dd]ouble"),
    "bfloat16": re.compile(r"\bbfloat16|BFloat16"),
    "float16": re.compile(r"\b(float16|[Hh]alf)"),
}
"""Patterns of messages about dtypes, by the dtype of a model's own numbers, where that is not float32."""
_WANTS_MASKS = re.compile(r"expected (?:predicate|condition) to be (?:a )?bool")
_WANTS_FLOATS = re.compile(
    r"(same dtype|expected).*(Float|float)|not implemented for '(Long|Int)'|got Long|got: Long|found Long|"
    r"requires a floating point"
)


def repairs(trial: Trial, sizes: ModelSizes) -> Iterator[Specs]:
    """Yield guesses worth trying after `trial`, the likeliest first. They may repeat earlier ones."""
    assert trial.error is not None
    message = text_of(trial.error)
    yield from learnt(trial, sizes)
    yield from _missing(trial, message, sizes)
    yield from _of_listed_values(trial, message)
    yield from _as_flags(trial, message)
    yield from _viewed(trial, message)
    yield from _of_asserted_sizes(trial)
    yield from _of_asserted_ranks(trial, sizes)
    yield from _as_masks_of_scores(trial, message)
    yield from _as_boxes(trial, message)
    yield from _as_sound(trial, message, sizes)
    yield from _of_named_rank(trial, message)
    yield from _transposed(trial, sizes)
    yield from _shapes_for_layers(trial, sizes)
    yield from _parts_of_channels(trial)
    yield from _share_of_channels(trial)
    yield from _corrected_channels(trial)
    yield from _one_per_item(trial)
    yield from _of_other_type(trial, message)
    yield from _of_other_rank(trial, message, sizes)
    yield from _shapes_for_module(trial, sizes)
    yield from _of_named_sizes(trial, message, sizes)
    yield from _of_lower_values(trial, message)
    yield from _as_image(trial, sizes)
    yield from _of_other_sizes(trial, message)
    yield from _longer_rank(trial, sizes)


def _shapes_for_layers(trial: Trial, sizes: ModelSizes) -> Iterator[Specs]:
    """Give each input the shape that the layer it reached requires."""
    entries = dict(trial.entries)
    tensors = [spec for spec in trial.specs if spec.dtype != CONSTANT]
    if len(tensors) == 1 and trial.first is not None:
        entries.setdefault(tensors[0].name, trial.first)
    for index, spec in enumerate(trial.specs):
        is_other = are_unknown(axes(sizes.model, spec.name))  # the code makes of it what the layer takes
        expected = input_of(spec.name, entries[spec.name], sizes) if spec.name in entries and not is_other else None
        has_rows = len(spec.shape) == 3 or (len(spec.shape) == 2 and spec.shape[0] != BATCH)  # as many as before
        if expected is not None and isinstance(entries[spec.name], nn.Linear) and has_rows:
            expected = replace(expected, shape=(*spec.shape[:-1], *expected.shape[1:]))
        before = 0 if expected is None else len(spec.shape) - len(expected.shape)
        if expected is not None and isinstance(entries[spec.name], Convolution) and before > 0:  # pictures of a video
            shape = (*spec.shape[: 1 + before], expected.shape[1], *spec.shape[2 + before :])
            expected = replace(expected, shape=shape)
        if expected is not None and not _agree(spec, expected):
            yield _with(trial.specs, index, expected)


def _shapes_for_module(trial: Trial, sizes: ModelSizes) -> Iterator[Specs]:
    """Give inputs in the failing code the shape that the first layers of its module require."""
    if trial.module is None or trial.module is sizes.model:
        return
    for _, layer in entry_layers(trial.module)[:_FIRST]:
        for index, spec in enumerate(trial.specs):
            expected = input_of(spec.name, layer, sizes) if spec.name in trial.inputs_in_scope else None
            if expected is not None and not _agree(spec, expected):
                yield _with(trial.specs, index, expected)


def _of_listed_values(trial: Trial, message: str) -> Iterator[Specs]:
    """Replace a number that the message names by one of the valid numbers that it lists."""
    match = _LISTED.search(message)
    for index, spec in enumerate(trial.specs):
        if match is not None and isinstance(spec.low, float | int) and spec.dtype == CONSTANT and spec.name in message:
            yield from (
                _with(trial.specs, index, replace(spec, low=int(number)))
                for number in match[1].split(",")
                if int(number) != spec.low
            )


def _as_flags(trial: Trial, message: str) -> Iterator[Specs]:
    """Give inputs that the failing line takes for true or false no tensor."""
    if "value of Tensor with more than one value is ambiguous" not in message or trial.error is None:
        return
    flags = set(_FLAG.findall(line_of(trial.error)))
    if any(spec.name in flags for spec in trial.specs):
        yield tuple(InputSpec.constant(s.name, True) if s.name in flags else s for s in trial.specs)


def _viewed(trial: Trial, message: str) -> Iterator[Specs]:
    """Give an input the size that `view` requires, as its whole size or in addition to other inputs."""
    match, error = _VIEW.search(message), trial.error
    if match is None or error is None:
        return
    shape, number = [int(each) for each in match[1].split(",")], int(match[2])
    fixed = math.prod(size for size in shape if size > 0)
    each, own = fixed if -1 in shape else fixed // TRIAL_BATCH, number // TRIAL_BATCH
    held = [spec for spec in trial.specs if spec.name in trial.inputs_in_scope and spec.shape[:1] == (BATCH,)]
    for spec in sorted(held, key=lambda spec: (not _is_named(spec, error), spec.shape[-1] != 1)):
        index = trial.specs.index(spec)
        for place, size in enumerate(spec.shape):
            if isinstance(size, int) and own and size * each % own == 0:
                changed = (*spec.shape[:place], size * each // own, *spec.shape[place + 1 :])
                yield _with(trial.specs, index, replace(spec, shape=changed))
        if _is_named(spec, error):
            yield _with(trial.specs, index, replace(spec, shape=(BATCH, each), dtype="float32", low=None, high=None))
        last = spec.shape[-1]
        if isinstance(last, int) and (grown := last + each - own) > 0 and len(spec.shape) > 1:
            yield _with(trial.specs, index, replace(spec, shape=(*spec.shape[:-1], grown)))


def _as_masks_of_scores(trial: Trial, message: str) -> Iterator[Specs]:
    """Give masks of positions the dimensions of attention's scores, if they do not fit them: heads, and queries."""
    masks = {spec.name: spec for spec in trial.specs if "mask" in spec.name.lower() and len(spec.shape) == 2}
    if _BROADCAST.search(message) is None or not any(name in trial.inputs_in_scope for name in masks):
        return
    for between in ((1, 1), (1,)):
        shapes = {name: (spec.shape[0], *between, spec.shape[1]) for name, spec in masks.items()}
        yield tuple(replace(s, shape=shapes[s.name]) if s.name in shapes else s for s in trial.specs)


def _as_boxes(trial: Trial, message: str) -> Iterator[Specs]:
    """Give an image boxes with classes in place of one class, if the model wants more dimensions of its labels."""
    if _RANGE.search(message) and any(len(spec.shape) == 4 for spec in trial.specs):
        for index, spec in enumerate(trial.specs):
            if spec.name in LABELS and spec.shape == (BATCH,) and spec.name in trial.inputs_in_scope:
                yield _with(trial.specs, index, InputSpec(spec.name, (BATCH, NUM_BOXES, 5), low=0.0, high=32.0))


def _as_sound(trial: Trial, message: str, sizes: ModelSizes) -> Iterator[Specs]:
    """Give what a spectrum is made of the shape of sound, with one channel or none."""
    if "stft expected a 1D or 2D tensor" in message:
        for channels in ((1,), ()):
            shape = (BATCH, *channels, sizes.samples or AUDIO_LENGTH)
            yield tuple(replace(s, shape=shape) if s.dtype == "float32" else s for s in trial.specs)


def _of_named_rank(trial: Trial, message: str) -> Iterator[Specs]:
    """Add to inputs in the failing code the dimension that the error requires."""
    match = _RANGE.search(message) or _RANKS.search(message)
    if match is None or trial.error is None:
        return
    rank = int(match[1]) if match.re is _RANGE else min(int(match[1]), int(match[2]))
    for index, spec in enumerate(trial.specs):
        is_low = spec.dtype != CONSTANT and len(spec.shape) <= max(rank, 1) + 1
        if is_low and spec.name in trial.inputs_in_scope and _is_named(spec, trial.error):
            grown = replace(spec, shape=(*spec.shape, 1), dtype="float32", low=None, high=None)
            yield _with(trial.specs, index, grown)


def _is_named(spec: InputSpec, error: Exception) -> bool:
    """Return True if the line that raised names the input."""
    return re.search(rf"\b{spec.name.rpartition('.')[2]}\b", line_of(error)) is not None


def _parts_of_channels(trial: Trial) -> Iterator[Specs]:
    """Give each of several images its share of the channels if the model concatenates them."""
    if isinstance(trial.layer, Convolution) and len(trial.received) > 1:
        wanted, got = trial.layer.in_channels, trial.received[1]
        images = [spec for spec in trial.specs if len(spec.shape) > 2 and isinstance(spec.shape[1], int)]
        if got > wanted and got % wanted == 0 and len(images) == got // wanted:
            yield tuple(
                replace(spec, shape=(spec.shape[0], max(1, wanted // len(images)), *spec.shape[2:]))
                if spec in images
                else spec
                for spec in trial.specs
            )


def _share_of_channels(trial: Trial) -> Iterator[Specs]:
    """Give an image as many channels as a layer wants of it that got a multiple.

    The model stacks its parts before a convolution, or makes rows of patches for a norm or a linear layer.
    """
    layer, is_image = trial.layer, isinstance(trial.layer, Convolution)
    of_rows = layer.normalized_shape[-1] if isinstance(layer, nn.LayerNorm) else getattr(layer, "in_features", 0)
    wanted = layer.in_channels if isinstance(layer, Convolution) else of_rows
    if not wanted or len(trial.received) < 2:
        return
    got = trial.received[1 if is_image else -1]
    for index, spec in enumerate(trial.specs):
        place = _place_of_channels(spec, trial) if is_image else 1
        channels = spec.shape[place] if len(spec.shape) > 3 and spec.dtype == "float32" else 0
        if isinstance(channels, int) and got > wanted and channels * wanted % got == 0 and channels * wanted >= got:
            shape = (*spec.shape[:place], channels * wanted // got, *spec.shape[place + 1 :])
            yield _with(trial.specs, index, replace(spec, shape=shape))


def _place_of_channels(spec: InputSpec, trial: Trial) -> int:
    """Return the place of the channels in what a convolution received: those of a video come behind its pictures."""
    return 1 + max(len(spec.shape) - len(trial.received), 0)


def _corrected_channels(trial: Trial) -> Iterator[Specs]:
    """Change the channels, or features, that a layer got together with others that the model adds.

    Inputs of one shape may both be among them, and one of them twice: as it is and masked.
    """
    layer = trial.layer
    place, wanted = (1, layer.in_channels) if isinstance(layer, Convolution) else (-1, getattr(layer, "in_features", 0))
    if not wanted or len(trial.received) < 2:
        return
    excess = trial.received[place] - wanted
    images = [spec for spec in trial.specs if len(spec.shape) > 2 and spec.dtype == "float32"]
    if place == -1:  # what is flat has features of another number
        images = [spec for spec in images if len(spec.shape) == len(trial.received)]
    alike = [[spec for spec in images if spec.shape == shape] for shape in dict.fromkeys(s.shape for s in images)]
    groups = [*((each, len(each)) for each in alike), *(([spec], times) for times in (1, 2) for spec in images)]
    for group, times in groups:
        shape, (share, rest) = list(group[0].shape), divmod(excess, times)
        own = place if place == -1 else _place_of_channels(group[0], trial)
        size = shape[own]
        if excess and not rest and isinstance(size, int) and size > max(share, 0):
            shape[own] = size - share
            yield tuple(replace(spec, shape=tuple(shape)) if spec in group else spec for spec in trial.specs)


def _transposed(trial: Trial, sizes: ModelSizes) -> Iterator[Specs]:
    """Put features last if a convolution got the channels there: the model transposes its input."""
    layer = trial.layer
    for index, spec in enumerate(trial.specs):
        turned = (*spec.shape[:1], *spec.shape[:0:-1])
        if not isinstance(layer, nn.Conv1d) or len(spec.shape) != 3 or trial.received[1:] != turned[1:]:
            continue
        if spec.dtype == "float32":
            length = sizes.length or spec.shape[2]
            known = turned if turned[2] == layer.in_channels else (spec.shape[0], length, layer.in_channels)
            yield _with(trial.specs, index, replace(spec, shape=known))


def _missing(trial: Trial, message: str, sizes: ModelSizes) -> Iterator[Specs]:
    """Add inputs that the error calls missing: by name, or optional ones if None is used."""
    taken = parameters(sizes.model.forward)
    known = {re.split(r"[.\[]", spec.name)[0] for spec in trial.specs}
    names = {name for match in _REQUIRED.findall(message) for name in re.findall(r"'(\w+)'", match)}
    text = ast.unparse(forward_code(type(sizes.model)))
    optional = [name for name, each in taken.items() if each.default is None and name not in known]
    optional = [name for name in optional if not re.search(rf"\bif {name} is None:\s+{name} = ", text)]
    line = "" if trial.error is None else line_of(trial.error)
    names |= {name for name in optional if re.search(rf"\b{name}\b", f"{message} {line}")}
    if "NoneType" in message or "None" in line:
        names |= {*optional[: 1 if not names else 0]}
    every = frozenset(taken) | names
    for name in sorted(names - known, key=[*taken, *sorted(names)].index):
        parameter = taken.get(name, inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD))
        yield (*trial.specs, *of_batch_items(sizes.model, parameter, guess_input(parameter, sizes.model, every, sizes)))
        yield from ((*trial.specs, replace(spec, name=name)) for spec in trial.specs[:1])


def _agree(spec: InputSpec, expected: InputSpec) -> bool:
    """Return True if the layer that requires `expected` accepts `spec`: batch dimensions and other sizes may differ."""
    if spec.dtype != expected.dtype:
        return False
    if spec.dtype == "int64":
        return spec.high == expected.high
    if len(expected.shape) > 3:
        return len(spec.shape) == len(expected.shape) and spec.shape[1] == expected.shape[1]
    return spec.shape[-1] == expected.shape[-1] or (len(spec.shape) == 3 and spec.shape[1] == expected.shape[1])


def _one_per_item(trial: Trial) -> Iterator[Specs]:
    """Give a class to each item in place of each position of its text."""
    for index, spec in enumerate(trial.specs):
        if spec.name in LABELS and spec.dtype == "int64" and len(spec.shape) == 2:
            yield _with(trial.specs, index, replace(spec, shape=(BATCH,)))


def _of_other_type(trial: Trial, message: str) -> Iterator[Specs]:
    for index, spec in enumerate(trial.specs):
        if spec.dtype == "float32" and _WANTS_INTEGERS.search(message):
            yield _with(trial.specs, index, replace(spec, dtype="int64", low=None, high=2))
        for dtype, wanted in _OTHER_FLOATS.items() if spec.dtype == "float32" else ():
            if wanted.search(message):
                yield tuple(replace(each, dtype=dtype) if each.dtype == "float32" else each for each in trial.specs)
        if spec.dtype != "bool" and _WANTS_MASKS.search(message) and trial.error and _is_named(spec, trial.error):
            yield _with(trial.specs, index, replace(spec, dtype="bool", low=None, high=2))
        if spec.dtype in {"int64", "bool"} and _WANTS_FLOATS.search(message):
            yield _with(trial.specs, index, replace(spec, dtype="float32", low=None, high=None))


def _of_asserted_ranks(trial: Trial, sizes: ModelSizes) -> Iterator[Specs]:
    """Give all inputs the dimensions that an assertion of the model wants."""
    wanted = asserted_ranks(trial.error)
    other = [
        next(_ranked(spec, wanted[spec.name], sizes), spec)
        if spec.dtype != CONSTANT and len(spec.shape) != wanted.get(spec.name, len(spec.shape))
        else spec
        for spec in trial.specs
    ]
    if tuple(other) != trial.specs:
        yield tuple(other)


def _of_other_rank(trial: Trial, message: str, sizes: ModelSizes) -> Iterator[Specs]:
    """Give an input as many dimensions as the model unpacks or permutes."""
    match, layer = _UNPACK.search(message), _CONV_RANK.search(message)
    if match or layer:
        rank = int(match[1]) if match else int(layer[1]) + 2 if layer else 0
        if rank == 3 and all(len(spec.shape) == 4 for spec in trial.specs if spec.dtype == "float32"):
            yield tuple(_without_height(spec, sizes) for spec in trial.specs)
        is_own = trial.module is sizes.model  # whose variables have the names of the inputs
        named = [spec for spec in trial.specs if is_own and trial.error and _is_named(spec, trial.error)]
        for index, spec in enumerate(trial.specs):
            if spec.dtype != CONSTANT and len(spec.shape) != rank and (spec in named or not named):
                yield from (_with(trial.specs, index, other) for other in _ranked(spec, rank, sizes))


def _without_height(spec: InputSpec, sizes: ModelSizes) -> InputSpec:
    """Replace an image by sound or points."""
    if len(spec.shape) < 4:
        return spec
    length = sizes.samples or AUDIO_LENGTH if spec.shape[1] == 1 else sizes.points or _NUM_POINTS
    return replace(spec, shape=(*spec.shape[:2], length))


def _ranked(spec: InputSpec, rank: int, sizes: ModelSizes) -> Iterator[InputSpec]:
    """Yield `spec` with `rank` dimensions, with its features last."""
    last, length = spec.shape[-1], sizes.length or DEFAULT_LENGTH
    side = math.isqrt(last) if isinstance(last, int) else 0
    if rank == 3 and spec.dtype == "int64" and len(spec.shape) == 2 and side * side == last:
        yield replace(spec, shape=(spec.shape[0], side, side))  # the tokens of an image, before they are in a row
    if rank == 1:
        yield replace(spec, shape=(BATCH,))
    if rank == 2:
        yield replace(spec, shape=(BATCH, last if last != BATCH else length))
    if rank == 3:
        yield replace(spec, shape=(BATCH, length, last if last != BATCH else sizes.channels or sizes.width or 16))
    if rank == 4:
        height, width = sizes.image_size or (32, 32)
        yield replace(spec, shape=(BATCH, 3, height, width))
        yield replace(spec, shape=(BATCH, height, width, last if last != BATCH else 3))
    if rank == 5 and len(spec.shape) == 4:
        yield replace(spec, shape=(BATCH, sizes.pictures or PICTURES, *spec.shape[1:]))
    if rank == 5:
        yield replace(spec, shape=(BATCH, 3, sizes.pictures or PICTURES, *(sizes.image_size or VIDEO_SIZE)))


def _of_named_sizes(trial: Trial, message: str, sizes: ModelSizes) -> Iterator[Specs]:
    """Replace a size that the message names by another size that it names."""
    # The larger size is the likelier one: the other was guessed.
    pairs = [(min(int(a), int(b)), max(int(a), int(b))) for a, b in _MISMATCH.findall(message)]
    for product in _PRODUCT.findall(message):
        rows, columns, features = (int(number) for number in (product[:3] if product[0] else product[4:7]))
        pairs += [(columns, features), (rows, features)]
    if isinstance(trial.layer, nn.Linear) and trial.received:
        pairs.append((trial.received[-1], trial.layer.in_features))
    numbers = [int(number) for number in _NUMBER.findall(message)][:6]
    if len(numbers) == 1 and numbers[0] > 1:  # "length must be 128"
        yield from _of_size(trial, numbers[0])
    pairs += [(a, b) for a in numbers for b in numbers if a != b and b > 1]
    least = 2 if _MISMATCH.search(message) else 1  # a size of 1 matches every other
    for old, new in dict.fromkeys(pairs + [(b, a) for a, b in pairs]):
        for index, spec in enumerate(trial.specs):
            places = [place for place, size in enumerate(spec.shape) if place and size == old] if new >= least else []
            are_sides = len(spec.shape) > 3 and places == [len(spec.shape) - 2, len(spec.shape) - 1]
            are_sides = are_sides and not are_unknown(axes(sizes.model, spec.name))
            alone = [] if are_sides or len(places) == 1 else [[place] for place in places]  # equal by chance
            for changed in [*alone, places] if places else []:
                shape = tuple(new if place in changed else size for place, size in enumerate(spec.shape))
                yield _with(trial.specs, index, replace(spec, shape=shape))


def _of_asserted_sizes(trial: Trial) -> Iterator[Specs]:
    """Give an input the sizes that an assertion compares its own with: `assert x.shape[2:] == self.table.shape`."""
    error = trial.error
    compared = list(asserted_equal(error))
    named = [spec for spec in trial.specs if compared and error is not None and _is_named(spec, error)]
    for spec in dict.fromkeys((*named, *trial.specs)):
        for own, wanted in compared:
            for place in range(1, len(spec.shape) - len(own) + 1):
                if spec.shape[place : place + len(own)] == own:
                    shape = (*spec.shape[:place], *wanted, *spec.shape[place + len(own) :])
                    yield _with(trial.specs, trial.specs.index(spec), replace(spec, shape=shape))


def _of_other_sizes(trial: Trial, message: str) -> Iterator[Specs]:
    """Try the usual sizes, and the size that gives the number of features that a layer after flattening requires."""
    for index, spec in enumerate(trial.specs):
        if spec.dtype != "float32" or len(spec.shape) < 3 or not isinstance(spec.shape[-1], int):
            continue
        spatial = len(spec.shape) - 2
        usual = _IMAGE_SIZES if spatial > 1 else _LENGTHS
        for size in (*_of_positions(spec, message), *_solved(trial, spec), *usual):
            yield _with(trial.specs, index, replace(spec, shape=(*spec.shape[:2], *(size,) * spatial)))
    for length in _LENGTHS:
        changed = tuple(
            replace(spec, shape=(BATCH, length)) if _is_longer_text(spec, length) else spec for spec in trial.specs
        )
        if changed != trial.specs:
            yield changed


def _of_lower_values(trial: Trial, message: str) -> Iterator[Specs]:
    """Lower the ids to make room for what the model adds: one for padding, offsets of fields that share one table."""
    if _OUT_OF_BOUNDS.search(message):
        for index, spec in enumerate(trial.specs):
            columns = spec.shape[-1] if spec.shape else 0
            high = 0 if spec.high is None else int(spec.high)
            if spec.dtype == "int64" and isinstance(columns, int) and columns > 1 and high > 1:
                if high >= columns:
                    yield _with(trial.specs, index, replace(spec, high=high // columns))
                yield _with(trial.specs, index, replace(spec, high=high - 1))


def _as_image(trial: Trial, sizes: ModelSizes) -> Iterator[Specs]:
    """Try an image if some layer accepts one and nothing else has reached any layer."""
    tensors = [index for index, spec in enumerate(trial.specs) if spec.dtype == "float32"]
    layers = (each for each in sizes.model.modules() if isinstance(each, nn.Conv2d) and each.in_channels == _COLOURS)
    if trial.progress == 0 and len(tensors) == 1 and (layer := next(layers, None)) is not None:
        expected = input_of(trial.specs[tensors[0]].name, layer, sizes)
        if expected is not None:
            yield _with(trial.specs, tensors[0], expected)


def _of_size(trial: Trial, size: int) -> Iterator[Specs]:
    """Try images, sounds and texts of this size."""
    for index, spec in enumerate(trial.specs):
        if spec.dtype != CONSTANT and len(spec.shape) > 1 and spec.shape[-1] != size:
            kept = 1 if spec.dtype == "int64" else min(2, len(spec.shape) - 1)
            shape = (*spec.shape[:kept], *(size for _ in spec.shape[kept:]))
            yield _with(trial.specs, index, replace(spec, shape=shape))


def _is_longer_text(spec: InputSpec, length: int) -> bool:
    long = len(spec.shape) == 2 and isinstance(spec.shape[1], int) and length < spec.shape[1]
    return long and spec.dtype == "int64"


def _of_positions(spec: InputSpec, message: str) -> Iterator[int]:
    """Yield the side of an image whose patches, and a class or registers beside them, are as many as positions."""
    match, side = _MISMATCH.search(message), spec.shape[-1]
    if match is None or len(spec.shape) != 4 or not isinstance(side, int) or spec.shape[-2] != side:
        return
    for num_others in range(_MOST_BESIDE_PATCHES + 1):
        now, wanted = (math.isqrt(max(int(each) - num_others, 0)) for each in match.groups())
        fits = all(root**2 + num_others == int(each) for root, each in zip((now, wanted), match.groups(), strict=True))
        if fits and now and wanted and side % now == 0:
            yield side // now * wanted


def _solved(trial: Trial, spec: InputSpec) -> tuple[int, ...]:
    """Return sizes that give the failing Linear its number of features, which grows with the area of the flat map."""
    if not isinstance(trial.layer, nn.Linear) or 0 in (trial.received or (0,)) or not isinstance(spec.shape[-1], int):
        return ()
    ratio = trial.layer.in_features / trial.received[-1]
    guess = spec.shape[-1] * ratio ** (1 / (len(spec.shape) - 2))
    # A map shrinks by whole pixels at each layer: the right size is near the proportional one, not equal to it.
    near = sorted(range(max(1, round(guess) - 8), round(guess) + 9), key=lambda size: (size % 2, abs(size - guess)))
    usual = (size for size in _IMAGE_SIZES if abs(size - guess) <= 16)
    return tuple(dict.fromkeys((*usual, *near)))


def _longer_rank(trial: Trial, sizes: ModelSizes) -> Iterator[Specs]:
    """Give features a time dimension, or remove it."""
    for index, spec in enumerate(trial.specs):
        if spec.dtype == "float32" and spec.shape and isinstance(spec.shape[-1], int) and len(spec.shape) in {2, 3}:
            yield from (_with(trial.specs, index, other) for other in _ranked(spec, 5 - len(spec.shape), sizes))


def _with(specs: Specs, index: int, spec: InputSpec) -> Specs:
    return (*specs[:index], spec, *specs[index + 1 :])
