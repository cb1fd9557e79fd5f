"""Shapes in annotations, `Float[Tensor, "batch channels 32 32"]` as in jaxtyping, and of named dimensions.

Many projects have classes of their own that leave the tensor out: `float["b n d"]`.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from torch import nn

from memlint.targets.workload import BATCH, InputSpec
from memlint.workloads.guess.axes_in_code import axes
from memlint.workloads.guess.dimension_names import SIDES, TIMES_OF_VIDEOS, dimension_names, with_stated_times
from memlint.workloads.guess.layers import AUDIO_LENGTH, PICTURES
from memlint.workloads.model_sizes import DEFAULT_IMAGE_SIZE, DEFAULT_LENGTH, ModelSizes, sides_of_map

_ANNOTATION = re.compile(
    r"\b(?P<kind>Bool|U?Int(?:eger)?|B?Float|Complex|Inexact|Real|Num|Shaped|bool|int|float)\d*"
    r"\[(?:.*?,)?\s*['\"](?P<sizes>[^'\"]*)['\"]\s*\]"
)
_INTEGERS = ("Int", "Uint", "Integer")
_RANK_OF_WORDS = 2
"""Dimensions of words and classes: what has more than its name says, and than these, is no number of either."""
_CHANNELS = frozenset({"c", "channel", "channels", "vars", "variables"})
_FEATURES = _CHANNELS | {"d", "dim", "e", "f", "features", "hidden"}
_BANDS = frozenset({"mel", "mels", "feats"})
_DEFAULT_SIDES = DEFAULT_IMAGE_SIZE, DEFAULT_IMAGE_SIZE
_OF_SIDES = frozenset({"size", "side", "image", "img", "grid", "resolution", "pixels"})
"""Words of which the name of a side has one."""
_SAMPLES = re.compile(
    r"(num|n)?_?(audio|wave?)?_?samp(le)?s?|(wav(e|eform)?|audio|signal)_?(len(gth)?)?", re.IGNORECASE
)
"""Names of the number of samples of sound."""
_OF_LENGTHS = frozenset({"l", "t"})
"""Beginnings of names of lengths: `L_txt`."""
_LENGTHS = frozenset({"l", "n", "s", "t", "seq", "seq_len", "length", "time", "tokens", "frames", "steps", "points"})


def documented(model: nn.Module, name: str, rank: int) -> str:
    """Return the shape that docstrings, or the code of `forward`, have for an input, as an annotation; else empty.

    What the code takes apart counts if that is more than `rank` dimensions.
    """
    names = dimension_names(model, name)
    return of_code(model, name, rank) if names == axes(model, name) else f"Shaped[Tensor, '{' '.join(names)}']"


def of_code(model: nn.Module, name: str, rank: int) -> str:
    """Return the shape that the code of `forward` takes an input apart into, if it has more than `rank` dimensions."""
    names = axes(model, name)
    kept = "Num" if _FEATURES.isdisjoint(names) else "Float"
    return f"{kept}[Tensor, '{' '.join(names)}']" if len(names) > rank else ""


def says_shape(annotation: object) -> bool:
    """Return True if an annotation says the shape of a tensor."""
    return _ANNOTATION.search(str(annotation)) is not None


def annotated(spec: InputSpec, annotation: object, sizes: ModelSizes) -> InputSpec:
    """Return `spec` with the rank, numbers and kind of values of the annotation; without one, `spec` itself."""
    match = _ANNOTATION.search(str(annotation))
    if match is None:
        return spec
    names = [name.rpartition("=")[2].lstrip("#?_") for name in match["sizes"].split()]
    kind = match["kind"].capitalize()
    if spec.shape[1:2] == (BATCH,) and names[:1] and names[0].lower().startswith("b"):
        spec = replace(spec, shape=(BATCH, spec.shape[0], *spec.shape[2:]))  # which is first here
    if not any(name.startswith("*") or "..." in name for name in names):
        shape = tuple(_size(name, place, len(names), spec, sizes) for place, name in enumerate(names))
        sides = [place for place, name in enumerate(names) if name.lower() in SIDES]
        if len(sides) == len(_DEFAULT_SIDES) and len(spec.shape) != len(names):
            of_images = dict(zip(sides, sizes.image_size or _DEFAULT_SIDES, strict=True))
            times = {n: sizes.pictures or PICTURES for n, name in enumerate(names) if name.lower() in TIMES_OF_VIDEOS}
            colours = {n: spec.shape[1] for n, name in enumerate(names) if name.lower() in _CHANNELS and spec.shape[2:]}
            known: dict[int, int | str] = {**times, **of_images, **colours}
            shape = tuple(known.get(place, size) for place, size in enumerate(shape))
        shape = _with_samples(names, _with_square(names, with_stated_times(names, shape, sizes)), sizes)
        if kind == "Shaped" and len(shape) > max(len(spec.shape), _RANK_OF_WORDS):
            kind = "Float"
        spec = replace(spec, shape=shape)
    if kind in _INTEGERS and spec.dtype != "int64":
        return replace(spec, dtype="int64", low=None, high=2)
    if kind == "Bool":
        return replace(spec, dtype="bool", low=None, high=2)
    if kind in ("Float", "Bfloat") and spec.dtype != "float32":
        return replace(spec, dtype="float32", low=None, high=None)
    return spec


def _with_square(names: Sequence[str], shape: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """Return a shape with the sides of a map in place of two lengths of one name: `(batch, size, size, features)`."""
    for place in range(1, len(names) - 1):
        if names[place] == names[place + 1] and not _OF_SIDES.isdisjoint(names[place].lower().split("_")):
            others = [size for size in (*shape[1:place], *shape[place + 2 :]) if isinstance(size, int)]
            sides = sides_of_map(_DEFAULT_SIDES, max(others, default=3))
            return (*shape[:place], *sides, *shape[place + 2 :])
    return shape


def _with_samples(names: Sequence[str], shape: tuple[int | str, ...], sizes: ModelSizes) -> tuple[int | str, ...]:
    """Return a shape with as many samples of sound as are stated, or a second of it: `(batch, num_samples)`."""
    is_sound = len(names) > 1 and _SAMPLES.fullmatch(names[-1]) is not None
    return (*shape[:-1], sizes.samples or AUDIO_LENGTH) if is_sound else shape


def _size(name: str, place: int, rank: int, spec: InputSpec, sizes: ModelSizes) -> int | str:
    if name.isdigit():
        return int(name)
    if place == 0 and rank > 1:
        return BATCH
    if len(spec.shape) == rank:
        return spec.shape[place]
    if place == rank - 1 and spec.dtype == "float32" and isinstance(spec.shape[-1], int):
        return spec.shape[-1]  # what the first layer takes
    first, *_ = parts = name.lower().split("_")
    words = {name.lower(), *(word for word in parts if len(word) > 1), *(_OF_LENGTHS & {first})}
    if _LENGTHS.isdisjoint(words) and not _BANDS.isdisjoint(words) and sizes.mels is not None:
        return sizes.mels
    if not _CHANNELS.isdisjoint(words):
        return sizes.channels or 3
    if not _LENGTHS.isdisjoint(words):
        return sizes.length or DEFAULT_LENGTH
    return BATCH if rank == 1 else sizes.width or sizes.channels or 16
