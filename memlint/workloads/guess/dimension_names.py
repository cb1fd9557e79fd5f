"""Names of an input's dimensions: in docstrings, `x: (B, L, C)`, in comments, and in the code of `forward`."""

import re
from collections.abc import Sequence
from dataclasses import replace

from torch import nn

from memlint.targets.workload import InputSpec
from memlint.workloads.guess.axes_in_code import axes, comments
from memlint.workloads.model_sizes import ModelSizes

_BETWEEN = r"(?:\s*[,*]\s*|\s+x\s+)"
_WORDS = r"(?:[^\n()\[\]]{0,60}(?:\n\s*)?|(?:\s*\([^()\n]*\))?:[^\n]*\n\s*shape:?\s*)"
_DOCUMENTED = rf"\b%s\b{_WORDS}[(\[]\s*((?:B|N|bs|bsz|batch\w*)(?:(?:{_BETWEEN}\w+)+|,))\s*[)\]]"
"""The name of an input, at most a few words or a line, and its sizes, of which the first is the batch."""
SIDES = frozenset({"h", "w", "height", "width"})
"""Names of the sides of a picture."""
TIMES_OF_VIDEOS = frozenset({"t", "time", "f", "frames", "num_frames", "l", "s"})
"""Names of the number of pictures in a video, or of frames of something else."""
_RANK_OF_SEQUENCES = 3


def dimension_names(model: nn.Module, name: str) -> tuple[str, ...]:
    """Return the names, or sizes, that docstrings, comments or code of `forward` have for an input's dimensions.

    The batch is the first. Methods such as `forward_features` may do the work of `forward`. What the code takes apart
    decides where a docstring has another number of dimensions.
    """
    kind, in_code = type(model), axes(model, name)
    parts = (getattr(kind, method, None) for method in vars(kind) if method.startswith("forward_"))
    for text in (kind.forward.__doc__, kind.__doc__, *(part.__doc__ for part in parts), comments(model, name)):
        if (match := re.search(_DOCUMENTED % re.escape(name), text or "", re.IGNORECASE)) is not None:
            sizes = re.split(_BETWEEN, match[1].rstrip(","))
            if len(in_code) in (0, len(sizes)):
                return tuple(sizes)
    return in_code


def are_unknown(names: Sequence[str]) -> bool:
    """Return True for more dimensions than a batch of sequences has, which are not those of pictures."""
    return len(names) > _RANK_OF_SEQUENCES and SIDES.isdisjoint(map(str.lower, names))


def with_stated_times(names: Sequence[str], shape: tuple[int | str, ...], sizes: ModelSizes) -> tuple[int | str, ...]:
    """Return a shape with as many frames as are stated, if its dimensions are unknown but for the name of that one."""
    if sizes.pictures is None or not are_unknown(names) or len(names) != len(shape):
        return shape
    known = dict.fromkeys(TIMES_OF_VIDEOS, sizes.pictures)
    return tuple(known.get(name.lower(), size) for name, size in zip(names, shape, strict=True))


def of_one_size(model: nn.Module, guesses: Sequence[InputSpec]) -> list[InputSpec]:
    """Return `guesses` in which dimensions of one name have the size of the input with the most of them."""
    named = {spec.name: dimension_names(model, spec.name) for spec in guesses if "." not in spec.name}
    sizes: dict[str, int | str] = {}
    for spec in sorted(guesses, key=lambda spec: -len(spec.shape)):
        names = named.get(spec.name, ())
        if len(names) == len(spec.shape):
            for name, size in zip(names, spec.shape, strict=True):
                sizes.setdefault(name, size)
    sizes = {name: size for name, size in sizes.items() if name != "_" and not name.isdigit()}
    return [
        replace(s, shape=tuple(sizes.get(n, size) for n, size in zip(named[s.name], s.shape, strict=True)))
        if s.name in named and len(named[s.name]) == len(s.shape)
        else s
        for s in guesses
    ]
